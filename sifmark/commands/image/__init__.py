"""Commands on images: render, sign, reproduce, convert to SIF, audit."""
