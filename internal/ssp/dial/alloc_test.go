//go:build !race

package dial

import (
	"context"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestAddressesThatAreKnownCostNoAllocation(t *testing.T) {
	ends, err := exchange.ParseEndpoints([]string{"http://localhost:1234", "http://127.0.0.2"})
	testsupport.NoError(t, err)
	d := newDialer(t, Options{Endpoints: ends, Mode: Auto, ConnectTimeout: connectTimeout})
	ctx := context.Background()
	if _, err := d.Addresses(ctx); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = d.Addresses(ctx) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
