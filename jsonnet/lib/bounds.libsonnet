// Spillway's bounds by what they say, as regular expressions for the label bound. A Go test compares them with the proxy's own (policy.CapacityBounds).
{
  // How much Spillway and its servers can do at once, whatever is asked: 429 for want of room. The others say what one request may ask for.
  capacity: 'memory.budget|memory.heap|evaluations|process_calls|replica_calls|read_slots|unselective_slots',
  // A query that a server may have ended over: about neither.
  suspect: 'quarantine',
}
