package manual

import (
	"testing"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }
