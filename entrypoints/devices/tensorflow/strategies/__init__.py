"""How ranks train one model together: gradients are averaged before the optimizer has them."""
