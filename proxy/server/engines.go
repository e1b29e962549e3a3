package server

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// engineKind is what an engine is made for.
type engineKind struct {
	samples                int64
	interval               time.Duration
	delayed, starts, units bool
}

// maxEngines is how many engines are kept: one for each max_samples of the configuration and each
// setting of the shards that was met.
const maxEngines = 16

// engines keeps Prometheus' engines, whose metrics alone cost more to make than most queries. The
// zero value is ready for use.
type engines struct {
	mu    sync.Mutex
	by    map[engineKind]*promql.Engine
	trees trees
}

// take returns an engine of the kind and the text under which it finds the expression, once: an
// engine wants a text, and what is left of a query after planning has none.
func (e *engines) take(k engineKind, expr parser.Expr) (*promql.Engine, string) {
	text := e.trees.put(expr)
	e.mu.Lock()
	defer e.mu.Unlock()
	engine := e.by[k]
	if engine != nil {
		return engine, text
	}
	if len(e.by) >= maxEngines || e.by == nil {
		e.by = map[engineKind]*promql.Engine{}
	}
	engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: int(k.samples), Timeout: 24 * time.Hour, // the request's own deadline is in its context
		LookbackDelta: defaultLookback, EnableAtModifier: true, EnableNegativeOffset: true, EnablePerStepStats: true,
		EnableDelayedNameRemoval: k.delayed, UseStartTimestamps: k.starts, EnableTypeAndUnitLabels: k.units,
		NoStepSubqueryIntervalFn: func(int64) int64 { return k.interval.Milliseconds() },
		Parser:                   planned{tree.Parser, &e.trees},
	})
	e.by[k] = engine
	return engine, text
}

// trees are expressions that wait for an engine.
type trees struct {
	mu   sync.Mutex
	next uint64
	by   map[string]parser.Expr
}

func (t *trees) put(e parser.Expr) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	text := strconv.FormatUint(t.next, 36)
	if t.by == nil {
		t.by = map[string]parser.Expr{}
	}
	t.by[text] = e
	return text
}

func (t *trees) take(text string) (parser.Expr, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.by[text]
	delete(t.by, text)
	return e, ok
}

// planned is a parser that hands over expressions which are there already.
type planned struct {
	parser.Parser
	trees *trees
}

// ParseExpr implements parser.Parser.
func (p planned) ParseExpr(text string) (parser.Expr, error) {
	if e, ok := p.trees.take(text); ok {
		return e, nil
	}
	return nil, fmt.Errorf("there is no expression %q", text)
}
