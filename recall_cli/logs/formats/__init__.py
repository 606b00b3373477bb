"""Log formats, one file each; `registry` lists them."""
