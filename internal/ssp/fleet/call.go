package fleet

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/zap"
)

// lease calls Redis for all buckets that are due, in one exchange. A second exchange repeats the calls for which
// Redis did not know the script. lease returns an error if Redis as a whole failed. An error of a single bucket is
// logged, and does not affect other buckets.
func (f *Fleet) lease(ctx context.Context, s *session, due []*Bucket) error {
	calls := make([]*leaseCall, len(due))
	for i, b := range due {
		a := b.nextCall(b.Since(time.Now()), &f.opts)
		f.calls++
		a.number = f.calls
		calls[i] = &a
	}
	unknown, err := f.eval(ctx, s, "EVALSHA", leaseSHA, calls)
	if len(unknown) > 0 {
		_, failed := f.eval(ctx, s, "EVAL", leaseScript, unknown)
		err = cmp.Or(err, failed)
	}
	return err
}

// eval runs the script once for each call, in one exchange. It returns the calls for which Redis did not know the
// script, and the first error of Redis as a whole.
func (f *Fleet) eval(ctx context.Context, s *session, name, script string, calls []*leaseCall) (unknown []*leaseCall, first error) {
	commands := make([]command, len(calls))
	for i, a := range calls {
		commands[i] = command{name, append([]any{script}, f.arguments(a)...)}
	}
	results, errs, err := s.pipeline(ctx, commands)
	for i, a := range calls {
		failed := cmp.Or(err, errs[i])
		if name == "EVALSHA" && unknownScript(failed) {
			unknown = append(unknown, a)
		} else {
			first = cmp.Or(first, f.complete(a, results[i], failed))
		}
	}
	return unknown, first
}

// complete handles the result of a call. It returns err if Redis as a whole failed.
func (f *Fleet) complete(a *leaseCall, result any, err error) error {
	b := a.bucket
	defer b.markFirstCall()
	redisFailed := err != nil && !concernsKey(err)
	if err == nil {
		var r leaseReply
		r, err = parseLeaseReply(result, a)
		if err == nil {
			b.apply(a, r, b.Since(time.Now()))
			b.keyFailing = false
			return nil
		}
	}
	b.failures.Add(1)
	if redisFailed {
		return err
	}
	if !b.keyFailing {
		b.keyFailing = true
		f.opts.Log.Warn("Redis gives no lease for an SSP: this replica continues with its last share of its qps.limit",
			zap.String("ssp", b.name), zap.String("key", f.key(b.name)), zap.Error(err))
	}
	return nil
}

// arguments returns the arguments after the script: the key, and ARGV in the form of lease.lua.
func (f *Fleet) arguments(a *leaseCall) []any {
	return []any{
		1, f.key(a.bucket.name),
		a.limit, a.burst, f.id, a.number, a.keep, a.giveBack, a.need, a.want, a.used, a.share,
		millis(f.opts.ReplicaTimeout), millis(a.valid),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (f *Fleet) key(name string) string { return f.opts.Prefix + ":qps:" + name }

// maxReplicas is far above the largest fleet. It keeps calculations with the number of replicas within an int.
const maxReplicas = 1 << 20

// parseLeaseReply parses the reply of lease.lua, and refuses values that the script cannot return.
func parseLeaseReply(reply any, a *leaseCall) (leaseReply, error) {
	v, err := redis.Values(reply, nil)
	var r leaseReply
	var share string
	if err == nil {
		_, err = redis.Scan(v, &r.granted, &share, &r.alive)
	}
	if err == nil {
		r.share, err = strconv.ParseFloat(share, 64)
	}
	if err != nil || r.granted < 0 || r.granted > max(0, a.want-a.keep) || !(r.share >= 0 && r.share <= a.limit*1.001) || r.alive < 1 || r.alive > maxReplicas {
		return leaseReply{}, fmt.Errorf("a reply that lease.lua cannot send: %.200v", v)
	}
	return r, nil
}
