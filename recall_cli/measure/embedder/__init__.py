"""`recall model`: what embedders tell apart, what they cost, and fitting one to your traffic."""
