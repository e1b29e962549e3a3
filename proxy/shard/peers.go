package shard

// sparePart is the part of a gate's places that is kept from any one peer: a sixth, so 4 of 24. A
// peer is an address that connections come from, of IPv6 the network of 64 bits (identity.Holder),
// never what a header says. Two hostile addresses fill the gate together; one that asks too much,
// or reads its answers too slowly, does not. Of a few places none is kept.
const sparePart = 6

// ofPeer is how many of so many places one peer may have.
func ofPeer(places int) int { return places - places/sparePart }

// widest is how many places one call takes at most where a peer may have so many.
func widest(ofPeer int) int { return (ofPeer + 1) / 2 }
