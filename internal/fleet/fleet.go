// Package fleet is a QPS budget shared by replicas: tokens leased in batches from Redis.
//
// Redis holds a token bucket for each SSP, which a script fills and deals out
// (lease.lua). Each replica calls it beside the traffic, for tokens that its
// requests will take (Bucket), and no request ever waits for Redis. While it is
// away, each replica goes on with its last share.
//
// All replicas together send, in any span of time, no more than
//
//	limit * span + burst
//
// where burst is at least two tokens for each replica. While replicas are cut off
// from Redis, each may have saved up its part of the burst besides, and a Redis
// that has lost its data does not know what they hold: at most another burst.
// Beyond that, a replica that is cut off for longer than ReplicaTimeout, while
// others are not, cannot be told from a dead one: they are given its share, and
// what it sends comes on top. So does what is sent by one that has never reached
// Redis, limit / ExpectedReplicas.
//
// A replica whose lease has run out goes on alone eight LeaseIntervals after its
// last call; after a pause of its traffic, when it calls less often, up to a third
// of ReplicaTimeout more. Until then it has the tokens it holds.
//
// Clocks of replicas are never compared: Redis' own counts, and what a replica
// measures are spans from the arrival of an answer on, which came after Redis had
// begun to count them.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Options are the settings `fleet`.
type Options struct {
	Redis Redis
	// Prefix begins all keys in Redis. Replicas with one prefix share budgets.
	Prefix string
	// ExpectedReplicas divides a limit before Redis has told a share; at least 1.
	ExpectedReplicas int
	// LeaseInterval is the time between calls while there is traffic.
	LeaseInterval time.Duration
	// ReplicaTimeout is how long a replica that no longer calls keeps its share;
	// at least 20 LeaseIntervals.
	ReplicaTimeout time.Duration
	Log            *zap.Logger
}

// heartbeat is the time between calls while there is no traffic.
func (o *Options) heartbeat() time.Duration { return o.ReplicaTimeout / 3 }

// callTimeout bounds one exchange. With the longest lease, which begins when it
// ends, it stays below ReplicaTimeout: tokens never outlive their replica's record.
func (o *Options) callTimeout() time.Duration { return o.ReplicaTimeout / 4 }

// Fleet is one replica's side of the budgets. Close ends it.
type Fleet struct {
	opts Options
	id   string // of this replica, for as long as it runs

	calls uint64 // made; for run

	mu      sync.Mutex // guards the fields below; never held across I/O
	buckets map[string]*Bucket
	gone    []string // names of SSPs whose records are still to be removed
	closed  bool

	password atomic.Pointer[string]

	wake    chan struct{} // holds one: there is something new to call for
	stop    context.CancelFunc
	stopped chan struct{} // closed when run has returned
}

// New returns a fleet of no SSPs yet, and starts calling. It does not need Redis
// to be there.
func New(o Options) *Fleet {
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // it never fails
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{
		opts: o, id: hex.EncodeToString(id[:]), buckets: make(map[string]*Bucket),
		wake: make(chan struct{}, 1), stop: stop, stopped: make(chan struct{}),
	}
	f.SetPassword("")
	go f.run(ctx)
	return f
}

// Bucket returns the bucket of an SSP: the one that it has, with these settings
// from now on, or a new one. limit, above 0, is in requests a second, for the
// whole fleet; burst is at least 1.
func (f *Fleet) Bucket(name string, limit float64, burst int) *Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := settings{limit, burst}
	b := f.buckets[name]
	if b == nil {
		b = newBucket(name, s, f.opts.ExpectedReplicas)
		f.buckets[name] = b
	} else if *b.settings.Load() != s {
		b.change(s)
	}
	f.call()
	return b
}

// Keep forgets the buckets of all SSPs but these. They are used no more.
func (f *Fleet) Keep(names map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.buckets {
		if !names[name] {
			delete(f.buckets, name)
			f.gone = append(f.gone, name)
		}
	}
	f.call()
}

// SetPassword sets what Redis is told from the next connection on; "" = nothing.
func (f *Fleet) SetPassword(p string) { f.password.Store(&p) }

func (f *Fleet) open(ctx context.Context) (*session, error) {
	return f.opts.Redis.open(ctx, *f.password.Load())
}

// call makes run look at the buckets now.
func (f *Fleet) call() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// AwaitFirst returns when every bucket has been called for once, with success or
// not, or ctx has ended.
func (f *Fleet) AwaitFirst(ctx context.Context) {
	for _, b := range f.all() {
		select {
		case <-b.tried:
		case <-ctx.Done():
			return
		}
	}
}

// all returns the buckets.
func (f *Fleet) all() []*Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Bucket, 0, len(f.buckets))
	for _, b := range f.buckets {
		all = append(all, b)
	}
	return all
}

// Close ends the calls, and tells Redis, until ctx ends, that this replica is
// gone: the others take its share at once. Buckets go on alone.
func (f *Fleet) Close(ctx context.Context) {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	f.stop()
	<-f.stopped
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.callTimeout())
	defer cancel()
	f.leave(ctx)
}
