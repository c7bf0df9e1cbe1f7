package fleet

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/zap"
)

// lease calls Redis for all buckets in one exchange, and in a second one for buckets for which
// Redis did not know the script. It returns an error of Redis itself. An error of one bucket is
// logged, and does not affect others.
func (f *Fleet) lease(ctx context.Context, s *session, due []*Bucket) error {
	asks := make([]leaseCall, len(due))
	for i, b := range due {
		asks[i] = b.nextCall(b.Since(time.Now()), &f.opts)
		f.calls++
		asks[i].number = f.calls
	}
	left := make([]int, len(due)) // of due
	for i := range left {
		left[i] = i
	}
	var first error
	for _, how := range []command{{"EVALSHA", []any{leaseSHA}}, {"EVAL", []any{leaseScript}}} {
		if len(left) == 0 {
			break
		}
		commands := make([]command, len(left))
		for j, i := range left {
			commands[j] = command{how.name, append(how.args[:1:1], f.arguments(due[i].name, &asks[i])...)}
		}
		results, errs, err := s.pipeline(ctx, commands)
		var unknown []int
		for j, i := range left {
			failed := err
			if err == nil {
				failed = errs[j]
			}
			if how.name == "EVALSHA" && unknownScript(failed) {
				unknown = append(unknown, i)
				continue
			}
			if failed = f.complete(due[i], &asks[i], results[j], failed); failed != nil && first == nil {
				first = failed
			}
		}
		left = unknown
	}
	return first
}

// complete handles the result of a bucket's call. If err is an error of Redis itself, it returns
// err.
func (f *Fleet) complete(b *Bucket, a *leaseCall, result any, err error) error {
	defer b.markTried()
	own := err != nil && !ofKey(err)
	if err == nil {
		var r leaseReply
		if r, err = parseLeaseReply(result, a); err == nil {
			b.apply(a, r, b.Since(time.Now()))
			b.keyFailing = false
			return nil
		}
	}
	b.failures.Add(1)
	if own {
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
func (f *Fleet) arguments(name string, a *leaseCall) []any {
	return []any{
		1, f.key(name),
		a.limit, a.burst, f.id, a.number, a.keep, a.back, a.need, a.want, a.used, a.share,
		millis(f.opts.ReplicaTimeout), millis(a.valid),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (f *Fleet) key(name string) string { return f.opts.Prefix + ":qps:" + name }

// maxReplicas is far above the largest fleet. It keeps calculations with a number of replicas within
// an int.
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
