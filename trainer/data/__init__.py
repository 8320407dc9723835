"""Pictures, captions and boxes: from records to shards, and from shards to batches."""
