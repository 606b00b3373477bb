"""What a result looks like: blocks as text, as an HTML page, as SVG charts."""
