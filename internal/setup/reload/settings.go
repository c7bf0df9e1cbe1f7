package reload

import (
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
)

// sspOptions returns the settings of the SSP. If replicas share the SSP's qps limit, it also creates or
// changes the SSP's bucket in f.
func (s *preparedSSP) sspOptions(common common, f *fleet.Fleet) ssp.Options {
	c := s.cfg
	o := ssp.Options{
		Name: c.Name, Scheme: s.cfg.Parsed.Scheme, Path: s.cfg.Parsed.Path, Query: s.cfg.Parsed.Query, Host: c.Host,
		Policy: header.NewPolicy(header.PolicyOptions{
			Pass: c.Headers.Pass, Remove: c.Headers.Remove, Set: c.Headers.Set, Identity: c.Identity, Via: common.via,
			RequestID: common.requestID.Header, SendRequestID: common.requestID.ToSSP,
		}),
		RequestTimeout: c.Timeouts.Request, BlameAfter: common.patience, MaxInFlight: c.MaxInFlight,
		MaxBufferedBytes: int64(c.BufferedBytesLimit(common.maxBufferedBytes)),
		QPS:              c.QPS.Options(), Shape: c.QPS.Shape,
		Breaker: c.Breaker, RetryAfterMax: c.RetryAfterMax, RetryAfterShare: c.RetryAfterShare,
		RetryMax: c.Retry.Max, RetryStale: c.Retry.Stale, Hedge: c.Hedge,
		RewriteTmax: c.RewriteTmax, TmaxMargin: c.TmaxMargin, When: BodyConditions(c.When), Edit: editOf(c), MaxBodyBytes: common.maxBodyBytes, Compress: c.Compress, NoBidBody: c.NoBidBody, MaxResponseBytes: c.MaxResponseBytes,
		PipelineAll: c.Pool.PipelineMethods == config.PipelineAll, Lag: s.lag,
	}
	if c.SharesLimit() {
		o.QPS.Burst = o.QPS.BurstInForce()
		o.QPS.Fleet = f.Bucket(c.Name, o.QPS.Limit, o.QPS.Burst)
	}
	return o
}

func (s *preparedSSP) poolOptions(common common) pool.Options {
	c := s.cfg
	o := pool.Options{
		SSP:      c.Name,
		MaxConns: c.Pool.MaxConns, MaxHTTP2Conns: c.Pool.MaxHTTP2Conns, MinIdle: c.Pool.MinIdle, MaxIdle: c.Pool.MaxIdle,
		IdleTimeout: c.Pool.IdleTimeout, MaxAge: c.Pool.MaxAge, MaxRequests: c.Pool.MaxRequestsPerConn,
		MaxPending: c.Pool.MaxPending, PendingTimeout: c.Pool.PendingTimeout, Fair: common.fair,
		MaxDials: c.Pool.MaxDials, BackoffMin: c.Pool.DialBackoff.Min, BackoffMax: c.Pool.DialBackoff.Max,
		ConnectTimeout: c.Timeouts.Connect,
		Protocol:       c.Protocol.Protocol(s.encrypted()), PipelineDepth: c.Pool.PipelineDepth, MaxStreams: c.Pool.MaxStreamsPerConn,
		Ejection: c.Ejection, SlowStart: c.SlowStart, Events: s.events, Lag: s.lag, Auto: c.Pool.Auto, HealthCheck: c.HealthCheck,
	}
	o.HealthCheck.Scheme, o.HealthCheck.Host = c.Parsed.Scheme, c.Host
	for i, e := range s.cfg.Parsed.All {
		o.Endpoints = append(o.Endpoints, balancer.Options{Name: e.Name, Weight: c.Endpoints[i].Weight, Priority: c.Endpoints[i].Priority})
	}
	if s.encrypted() {
		o.TLSTimeout = c.Timeouts.TLSHandshake
	}
	return o
}

// editOf returns nil if the SSP gets bodies as they are.
func editOf(c *config.SSP) *openrtb.Edit {
	if len(c.Remove) == 0 && len(c.Set) == 0 {
		return nil
	}
	removals, sets := make([]openrtb.Removal, len(c.Remove)), make([]openrtb.Set, len(c.Set))
	for i, r := range c.Remove {
		removals[i] = openrtb.Removal{Path: openrtb.MustParsePath(r.Path), When: BodyConditions(r.When)}
	}
	for i, s := range c.Set {
		sets[i] = openrtb.Set{Path: openrtb.MustParsePath(s.Path), When: BodyConditions(s.When)}
		switch {
		case s.Value != nil:
			sets[i].How, sets[i].Value = openrtb.Replace, []byte(*s.Value)
		case s.Append != nil:
			sets[i].How, sets[i].Value = openrtb.Append, []byte(*s.Append)
		default:
			sets[i].How, sets[i].Value = openrtb.Default, []byte(*s.Default)
		}
	}
	return openrtb.NewEdit(removals, sets...)
}
