package advice

import (
	"fmt"
	"math"
	"time"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/exchange"
)

// Fit says whether a pool has enough places for a load.
type Fit struct {
	Needs  int    `json:"needs"`            // places in use on average, rounded up
	Places int    `json:"places"`           // places that the pool may have
	Full   bool   `json:"full"`             // Needs is at least Places, and Advice is not empty
	Advice string `json:"advice,omitempty"` // the setting to raise if more than 3 % of the requests would wait
}

// FitOf compares a load with the limits of a pool. The load is rate requests a second, each of which uses a place for the
// time hold; the pool's connections speak pr.
func FitOf(rate float64, hold time.Duration, pr exchange.Protocol, o *pool.Options) *Fit {
	setting, conns := sizeSetting(pr, o)
	perConn := o.PlacesPerConn(pr)
	f := &Fit{Needs: int(math.Ceil(capacity.Load(rate, hold))), Places: conns * perConn}
	if advised := capacity.Places(rate, hold, capacity.DefaultWaitingShare); advised > f.Places {
		f.Full = f.Needs >= f.Places
		f.Advice = fmt.Sprintf("raise %s to %d", setting, pool.ConnectionsFor(advised, perConn, pr))
	}
	return f
}
