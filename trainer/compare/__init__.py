"""Systems side by side: trained from the same seeds and data, measured alike, tested in pairs."""
