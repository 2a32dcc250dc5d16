"""One instance after another, step by step: the part of a page that walks through them."""
