package localprom

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/web"
)

// localStorage is the TSDB as the web handler wants it: cmd/prometheus has the same adapter,
// unexported.
type localStorage struct {
	*tsdb.DB
	stats *tsdb.DBStats
	read  storage.SampleAndChunkQueryable // what queries read instead of DB; nil for DB
	// server is set while handlerOf asks who serves: see there.
	server atomic.Pointer[chan *http.Server]
}

var _ web.LocalStorage = (*localStorage)(nil)

// BlockMetas returns the metadata of the blocks on disk.
func (s *localStorage) BlockMetas() ([]tsdb.BlockMeta, error) { return s.DB.BlockMetas(), nil }

// Stats returns the head's cardinality statistics.
func (s *localStorage) Stats(statsByLabelName string, limit int) (*tsdb.Stats, error) {
	return s.Head().Stats(statsByLabelName, limit), nil
}

// WALReplayStatus returns how far the replay at opening came.
func (s *localStorage) WALReplayStatus() (tsdb.WALReplayStatus, error) {
	return s.stats.Head.WALReplayStatus.GetWALReplayStatus(), nil
}

// Querier returns the TSDB's querier, or, while handlerOf asks, one that tells which server the
// request came to.
func (s *localStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	if s.read != nil && s.server.Load() == nil {
		return s.read.Querier(mint, maxt)
	}
	q, err := s.DB.Querier(mint, maxt)
	if found := s.server.Load(); found != nil && err == nil {
		return serverQuerier{Querier: q, found: *found}, nil
	}
	return q, err
}

// ChunkQuerier returns the querier of Options.Read, or the TSDB's. Remote read asks it.
func (s *localStorage) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	if s.read != nil {
		return s.read.ChunkQuerier(mint, maxt)
	}
	return s.DB.ChunkQuerier(mint, maxt)
}

// serverQuerier finds nothing, and sends the server of the request it was asked in.
type serverQuerier struct {
	storage.Querier
	found chan<- *http.Server
}

func (q serverQuerier) Select(ctx context.Context, _ bool, _ *storage.SelectHints, _ ...*labels.Matcher) storage.SeriesSet {
	if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		select {
		case q.found <- srv:
		default:
		}
	}
	return storage.EmptySeriesSet()
}

// noScrapeManager is what remote storage asks for the metadata of remote_write, which a shard does
// not have.
type noScrapeManager struct{}

func (noScrapeManager) Get() (*scrape.Manager, error) {
	return nil, errors.New("an embedded shard has no remote_write")
}
