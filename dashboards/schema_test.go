package dashboards

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// strict is what Grafana's own schema says of a dashboard: no unknown field, none missing, each of
// its type.
func strict(b []byte) error {
	plugins.RegisterDefaultPlugins()
	//lint:ignore SA1019 version 2 of the schema is nothing that Grafana 11 knows
	var d dashboard.Dashboard
	err := d.UnmarshalJSONStrict(b)
	var list cog.BuildErrors
	// without a fault it is an empty list, and not nil
	if errors.As(err, &list) && len(list) > 0 || err != nil && list == nil && err.Error() != "" {
		return err
	}
	return d.Validate()
}

func TestSchema(t *testing.T) {
	for _, name := range Names() {
		b, err := fs.ReadFile(FS(), name+".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := strict(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
