"""What a model is measured by, over anything that embeds images and texts."""
