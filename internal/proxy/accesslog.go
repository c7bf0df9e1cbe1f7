package proxy

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/route"
)

// AccessOptions say which requests get a line in the log.
type AccessOptions struct {
	Log     *zap.Logger // takes a line for each of them
	Enabled bool
	Sample  float64 // share of the requests, 0 to 1
}

// logAccess writes a line for a sample of the requests: how it ended, and where
// its time went.
func (p *Proxy) logAccess(r *request, res *route.Result) {
	if !r.opts.Access.Enabled || rand.Float64() >= r.opts.Access.Sample {
		return
	}
	f := make([]zap.Field, 0, 20)
	f = append(f, zap.ByteString("id", r.fields.RequestID()),
		zap.String("route", r.route.Name), zap.Stringer("method", r.ssp.Method), zap.Stringer("outcome", res.Outcome),
		zap.Int("request_bytes", len(r.body)), zap.Duration("total", time.Since(r.started)),
		zap.Duration("budget", r.ssp.Deadline.Sub(r.started)),
	)
	if res.SSP != nil {
		f = append(f, zap.String("ssp", res.SSP.Name()))
	}
	if ex := res.Exchange; ex != nil {
		t := &ex.Times
		f = append(f, zap.Stringer("protocol", ex.Protocol), zap.Bool("reused", ex.Reused))
		if !t.Acquired.IsZero() {
			f = append(f, zap.Duration("pending", t.Acquired.Sub(t.Queued)))
		}
		if t.TCP > 0 {
			f = append(f, zap.Duration("dns", t.DNS), zap.Duration("dial", t.TCP), zap.Duration("tls", t.TLS))
		}
		if !t.FirstByte.IsZero() {
			f = append(f, zap.Duration("first_byte", t.FirstByte.Sub(t.Acquired)))
		}
		if res.Err == nil {
			f = append(f, zap.Int("status", ex.Response.Status), zap.Int("answer_bytes", len(ex.Response.Body)))
		}
	}
	if legs := res.Legs(); legs != nil {
		// A copy: a logger may encode it only when the request is over.
		f = append(f, zap.Array("legs", legList(slices.Clone(legs))))
	}
	if res.Err != nil {
		f = append(f, zap.String("error", detailOf(res.Err)))
	}
	r.opts.Access.Log.Info("request", f...)
}

// legList logs how each SSP fared that was asked.
type legList []route.Leg

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (l legList) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for i := range l {
		leg := &l[i]
		err := enc.AppendObject(zapcore.ObjectMarshalerFunc(func(o zapcore.ObjectEncoder) error {
			o.AddString("ssp", leg.SSP.Name())
			o.AddString("outcome", leg.Outcome.String())
			o.AddDuration("took", leg.Took)
			return nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}
