package failing

import (
	"testing"

	"adbuffer/internal/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
