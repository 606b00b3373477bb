"""Why a file or a row gave no document, in words."""

from __future__ import annotations

REASONS = {
    "binary": "no text, but binary data",
    "duplicate_id": "under an id that came before",
    "empty": "without text",
    "hidden": "hidden files and folders",
    "id_too_long": "with an id that is too long",
    "line_too_long": "lines that are too long",
    "link_to_outside": "links that lead out of the folder",
    "malformed_json": "lines that are no JSON",
    "no_id": "without an id",
    "no_text": "without a text",
    "no_url_or_path": "rows without a URL or a path",
    "not_a_file": "no files, but pipes or devices",
    "not_an_object": "lines that are no object",
    "other_type": "files of another type",
    "path_to_outside": "paths that lead out of the folder",
    "path_without_folder": "paths on standard input",
    "too_large": "files over 32 MiB",
    "too_tangled": "pages that take too long to read",
    "unknown_encoding": "not UTF-8, and nothing says what",
    "unreadable": "that could not be read",
}
"""By the code that counts are kept and sent under."""
