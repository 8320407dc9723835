"""The demo data: emoji art composed into captioned scenes."""
