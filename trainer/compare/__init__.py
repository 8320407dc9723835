"""Systems side by side: trained alike, measured alike, and their differences tested."""
