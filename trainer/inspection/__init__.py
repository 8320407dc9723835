"""Looking into shards: counting their parts, drawing samples, finding what is broken."""
