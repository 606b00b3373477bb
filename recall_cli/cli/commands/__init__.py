"""One file a command; `*_view` and `*_options` where a command's tables or options are long."""
