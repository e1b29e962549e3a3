package cluster

// How the etcd members' pages follow troubles.

// outages says when a page does not answer because of staged troubles of the
// control plane and of monitoring, and which of these end in a new process.
func (m *Model) outages(t *Target) (down, restarts []event) {
	switch t.Job {
	case JobAPIServer:
		for _, job := range []string{JobEtcd, JobEtcdEvents} {
			down = append(down, m.tl.staged[eventKey{EtcdHung, job}]...)
		}
	case JobEtcd, JobEtcdEvents:
		down = m.tl.staged[eventKey{EtcdHung, t.Job}]
		restarts = down
	case JobPrometheus:
		for _, l := range m.promLives(t.ord) {
			down = append(down, event{from: l.from, until: l.back})
		}
		restarts = down
	}
	return down, restarts
}

// slowApplies is how many applies a second take too long behind a slow disk.
const slowApplies = 2

func etcdReactions() map[string]reaction {
	leaderless := func(value float64) reaction {
		return func(p *page) change { return setWhile(p.troubles(EtcdNoLeader), value, "", "") }
	}
	slowDisk := func(times float64) reaction {
		return func(p *page) change {
			evs := p.troubles(EtcdFsyncSlow)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: slower(evs, 1, func(e event, _ *series) dist { return dist{times * e.value, 0.35} })}
		}
	}
	halted := func(p *page) change {
		evs := p.troubles(EtcdNoLeader)
		if len(evs) == 0 {
			return change{}
		}
		st := active(evs)
		return change{each: func(s *series) { s.curve.held(st) }}
	}
	grows := func(part float64) reaction {
		return func(p *page) change {
			evs := p.troubles(EtcdDBGrows)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				from := s.curve.base
				var d []delta
				for _, e := range evs {
					full := e.from + (e.until-e.from)*3/4
					d = append(d, ramp(e.from, full, from, e.value*etcdQuota, 240)...)
					d = append(d, delta{full, e.value * etcdQuota}, delta{e.until, -e.value * etcdQuota})
				}
				s.curve.over = times(stepsFromDeltas(d), part)
			}}
		}
	}
	return map[string]reaction{
		"etcd_server_has_leader":                    leaderless(0),
		"etcd_server_is_leader":                     reactIsLeader,
		"etcd_server_leader_changes_seen_total":     reactLeaderChanges,
		"etcd_server_proposals_pending":             leaderless(40),
		"etcd_server_proposals_committed_total":     halted,
		"etcd_server_proposals_applied_total":       halted,
		"etcd_mvcc_put_total":                       halted,
		"etcd_mvcc_txn_total":                       halted,
		"etcd_disk_wal_fsync_duration_seconds":      slowDisk(1),
		"etcd_disk_wal_write_duration_seconds":      slowDisk(1),
		"etcd_disk_backend_commit_duration_seconds": slowDisk(1.6),
		"etcd_server_slow_apply_total": func(p *page) change {
			evs := p.troubles(EtcdFsyncSlow)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) { s.curve.more(p.pr, levels(evs, func(event) float64 { return slowApplies })) }}
		},
		"etcd_server_proposals_failed_total": func(p *page) change {
			evs := p.troubles(EtcdNoLeader)
			at := leaderChanges(p.troubles(EtcdLeaderChurn))
			if len(evs)+len(at) == 0 {
				return change{}
			}
			// Those under way fail when a leader goes; while there is none, more do.
			st := sum(levels(evs, func(event) float64 { return 5 }), times(counts(at), 3))
			return change{each: func(s *series) { s.curve.more(p.pr, st) }}
		},
		"etcd_server_health_failures": func(p *page) change {
			evs := p.troubles(EtcdNoLeader)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) { s.curve.more(p.pr, levels(evs, func(event) float64 { return 0.5 })) }}
		},
		"grpc_server_handled_total":               failedCalls,
		"etcd_mvcc_db_total_size_in_bytes":        grows(1),
		"etcd_mvcc_db_total_size_in_use_in_bytes": grows(0.93),
	}
}

// failedCalls: of the calls of each method few fail, and without a leader many.
func failedCalls(p *page) change {
	const usually = 1.0 / 4096
	evs := p.troubles(EtcdNoLeader)
	return change{each: func(s *series) {
		code := s.label("grpc_code")
		if code == "OK" {
			return
		}
		s.curve.base *= usually
		s.curve.amp *= usually
		if code == "Unavailable" && len(evs) > 0 {
			s.curve.more(p.pr, levels(evs, func(event) float64 { return 2 }))
		}
	}}
}

// etcdQuota is etcd_server_quota_backend_bytes in schema/etcd.txt.
const etcdQuota = 8.589934592e9

// times multiplies all levels by n.
func times(st *steps, n float64) *steps {
	out := &steps{}
	for i, v := range st.val {
		out.push(st.at[i], v*n)
	}
	return out
}

// leaderChanges are the moments at which leaders change, by time.
func leaderChanges(evs []event) []int64 {
	var out []int64
	for _, e := range evs {
		n := int64(e.value)
		for i := range n {
			out = append(out, e.from+(e.until-e.from)*i/n)
		}
	}
	return out
}

// leaderOf is the member that leads where nothing is staged.
func (p *page) leaderOf() int { return int(hash(p.m.seed, hashString(1, p.t.Job)) % 3) }

// reactIsLeader: after each change the next member leads, and goes on after the
// trouble; while the members have lost each other none does.
func reactIsLeader(p *page) change {
	at := leaderChanges(p.troubles(EtcdLeaderChurn))
	none := p.troubles(EtcdNoLeader)
	if len(at)+len(none) == 0 {
		return change{}
	}
	return change{each: func(s *series) {
		leads := func(n int) float64 {
			if (p.leaderOf()+n)%3 == p.t.ord {
				return 1
			}
			return 0
		}
		st := &steps{}
		st.push(p.m.start, leads(0))
		for n, t := range at {
			st.push(t, leads(n+1))
		}
		if len(none) > 0 {
			st = unless(st, active(none))
		}
		s.curve = curve{kind: gauge, k: 1, st: st, whole: true}
	}}
}

// unless is st where not is 0, and 0 elsewhere.
func unless(st, not *steps) *steps {
	out := &steps{}
	for i, j := 0, 0; i < len(st.at) || j < len(not.at); {
		var t int64
		switch {
		case j == len(not.at) || i < len(st.at) && st.at[i] < not.at[j]:
			t = st.at[i]
			i++
		case i == len(st.at) || not.at[j] < st.at[i]:
			t = not.at[j]
			j++
		default:
			t = st.at[i]
			i++
			j++
		}
		out.push(t, st.level(t)*(1-not.level(t)))
	}
	return out
}

// reactLeaderChanges: each new leader is seen once, the one after a time
// without any too.
func reactLeaderChanges(p *page) change {
	at := leaderChanges(p.troubles(EtcdLeaderChurn))
	for _, e := range p.troubles(EtcdNoLeader) {
		at = append(at, e.until)
	}
	if len(at) == 0 {
		return change{}
	}
	return change{each: func(s *series) { s.curve.more(p.pr, counts(at)) }}
}
