// Package relabel makes drop rules from what is stored and what is looked at, and proves them
// harmless before anybody sees them.
//
//	plan, err := relabel.Make(ctx, relabel.Options{Source: src, Uses: set, Now: now, Progress: progress})
//	err = plan.Write(file)
//
// # What it promises
//
// No rule is in a plan without its proof: every rule was run over every stored series, alone and
// together with the others. What did not pass is in Refused, with the reason, and what is left was
// proven again without it. With a replay, every query gave the same answer before and after. The
// same input gives the same bytes; there is no clock in here.
//
// A plan is read back with its rules ready to apply. Diff says what one plan does to stored series
// that another does not.
//
// # What it refuses
//
// Inputs that name no series at all or no use at all: with the wrong folder, everything would be
// unused. A usage log that lost requests, with nothing beside it. A source that has other series
// when it is read again. A plan of a version that it does not know, or one that was changed by
// hand, whose proof is not about what it says now. A replay whose difference no rule explains: then
// nothing is proven.
//
// # Memory
//
// That of the inventory, the uses, the proposal and the proof; see there. Series are never held.
package relabel
