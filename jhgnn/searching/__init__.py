"""Settings chosen by validation scores: spaces of recipe fields, and studies that try them."""
