package server

// pushable tells, by looks alone, whether a query has a part that the shards could aggregate.
func (w *exactWorld) pushable(exactQuestion) bool { return false }
