package discovery

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/config"
)

// listTimeout bounds one list of an API server; a watch has an end that the API server sets.
const listTimeout = time.Minute

// feed is one kind of objects of an API server in one namespace: listed, then watched.
type feed struct {
	role, namespace, resource string
	informer                  cache.SharedIndexInformer
	changed                   func()

	mu      sync.Mutex
	watched bool      // a watch has stood
	since   time.Time // since when it fails; zero where it does not
	err     error     // why
}

func listWatch[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return list(ctx, o)
		},
		WatchFuncWithContext: watch,
	}
}

// newFeed makes the feed of the objects of a role; object is one of them.
func newFeed(k *config.KubernetesSD, role, namespace, resource string, object runtime.Object, lw *cache.ListWatch, changed func()) *feed {
	f := &feed{role: role, namespace: namespace, resource: resource, changed: changed}
	var label, field string
	for _, s := range k.Selectors {
		if s.Role == role {
			label, field = s.Label, s.Field
		}
	}
	list, begin := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector, o.FieldSelector = label, field
		if o.ResourceVersion == "0" { // whatever a cache has, which may be what was long ago
			o.ResourceVersion = ""
		}
		all, err := list((&exchange{f: f}).within(ctx), o)
		if err != nil {
			f.failed(ctx, err)
		}
		return all, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector, o.FieldSelector = label, field
		x := &exchange{f: f}
		w, err := begin(x.within(ctx), o)
		switch {
		case err == nil && x.err == nil:
			f.stands()
		case err == nil: // client-go makes an empty watch of it
		default:
			f.failed(ctx, err)
		}
		return w, err
	}
	indexers := cache.Indexers{}
	if role == config.RoleEndpointSlice {
		indexers["service"] = serviceOf // by this name Prometheus looks
	}
	f.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, lister{}), object, 0, indexers)
	// Both fail only once it runs.
	_ = f.informer.SetTransform(slim)
	_ = f.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // it is listed anew then
			f.failed(ctx, err)
		}
	})
	return f
}

// exchange is one call of a feed, as its connection saw it: client-go repeats some that failed for
// ten seconds and more, and takes others for watches that had nothing to say.
type exchange struct {
	f   *feed
	err error
}

type exchangeKey struct{}

func (x *exchange) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// observed tells exchanges what became of them.
type observed struct{ http.RoundTripper }

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(r)
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		if x.err = err; err != nil {
			x.f.failed(r.Context(), err)
		}
	}
	return resp, err
}

// lister has client-go list before it watches, and not by a watch: while an API server refuses
// connections that waits for up to half a minute, whoever wants it to end.
type lister struct{}

func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// slim leaves out what nobody reads and is often the larger half of an object.
func slim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// serviceOf is the service that a slice belongs to.
func serviceOf(o any) ([]string, error) {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, errors.New("it is no endpointslice")
	}
	if name := es.Labels[discoveryv1.LabelServiceName]; name != "" {
		return []string{es.Namespace + "/" + name}, nil
	}
	return nil, nil
}

// stands learns that a watch has begun.
func (f *feed) stands() {
	f.mu.Lock()
	news := !f.watched || f.err != nil
	f.watched, f.err, f.since = true, nil, time.Time{}
	f.mu.Unlock()
	if news {
		f.changed()
	}
}

// failed learns that the API server could not be asked.
func (f *feed) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it is over
	}
	f.mu.Lock()
	news := f.err == nil
	if news {
		f.since = time.Now()
	}
	f.err = err
	f.mu.Unlock()
	if news {
		f.changed()
	}
}

// works tells whether the first list has come, and a watch has stood since.
func (f *feed) works() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watched && f.informer.HasSynced()
}

// fails is since when it does, and why; nil where it does not.
func (f *feed) fails() (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since, f.err
}

// why is what stands in the way, for the end of a sentence.
func (f *feed) why() string {
	if _, err := f.fails(); err != nil {
		return ": " + said(err)
	}
	return ""
}

// said is an error without the long address of the call.
func said(err error) string { return clip.Text(cause(err).Error(), 300) }

func (f *feed) String() string {
	if f.namespace == "" {
		return f.resource + " in all namespaces"
	}
	return f.resource + " in the namespace " + f.namespace
}
