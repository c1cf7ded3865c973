"""How ranks train one model together: each strategy wraps the model before the optimizer is made."""
