"""Photos with captions and boxes, as they were published, -> shards to train on."""
