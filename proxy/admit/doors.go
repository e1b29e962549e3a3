package admit

import "slices"

// Door lets a bounded number of calls through.
type Door interface {
	// Try takes a place where there is one that nobody waits for.
	Try() bool
	// Wait takes a place as soon as there is one. The error says why there was none in time.
	Wait() error
	// Leave gives a place back.
	Leave()
	// Wide tells whether it is several places that are taken and given back, all at once.
	Wide() bool
}

// rounds is how often EnterAll tries to have all places at once; wideRounds, where he who does is
// wide at some door. There a try is hardly ever lucky, and each round keeps places idle until all
// are there and gives them up again.
const rounds, wideRounds = 16, 2

// EnterAll takes a place at each of the doors, or at none. Who waits at one of them holds no place
// at another, so that a door behind which nothing moves keeps nobody from the others; his turn at
// each is that of his arrival (Asker.Arrived). Where places come and go so fast that he does not
// find all of them in some rounds, he waits in the order of the doors and keeps what he has. Nobody
// waits for anybody who waits for him as long as all requests name the doors in one order.
func EnterAll[D Door](doors []D) error {
	waited := -1 // the door whose place it waited for, and has
	n := rounds
	if slices.ContainsFunc(doors, D.Wide) {
		n = wideRounds
	}
	for range n {
		full := -1
		for i, d := range doors {
			if i != waited && !d.Try() {
				full = i
				break
			}
		}
		if full < 0 {
			return nil
		}
		leave(doors[:full])
		if waited > full {
			doors[waited].Leave()
		}
		if err := doors[full].Wait(); err != nil {
			return err
		}
		waited = full
	}
	doors[waited].Leave()
	for i, d := range doors {
		if err := d.Wait(); err != nil {
			leave(doors[:i])
			return err
		}
	}
	return nil
}

func leave[D Door](doors []D) {
	for _, d := range doors {
		d.Leave()
	}
}
