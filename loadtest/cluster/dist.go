package cluster

import "math"

// dist is a log-normal distribution: what latencies and sizes look like.
type dist struct{ median, sigma float64 }

// below is the share of observations at or below x.
func (d dist) below(x float64) float64 {
	if x <= 0 {
		return 0
	}
	if d.median <= 0 {
		return 1
	}
	return 0.5 * math.Erfc(-math.Log(x/d.median)/(d.sigma*math.Sqrt2))
}

func (d dist) mean() float64 { return d.median * math.Exp(d.sigma*d.sigma/2) }

func (d dist) quantile(q float64) float64 {
	if q <= 0 {
		q = 0.001
	}
	if q >= 1 {
		q = 0.999
	}
	return d.median * math.Exp(d.sigma*math.Sqrt2*math.Erfinv(2*q-1))
}
