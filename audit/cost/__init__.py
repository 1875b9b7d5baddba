"""What a run will cost, told before it starts: shards, bytes, time, memory."""
