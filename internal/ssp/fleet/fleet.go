// Package fleet shares a QPS budget among replicas, which lease tokens in batches from Redis.
//
// Redis holds a token bucket for each SSP, which a script fills and distributes (lease.lua). Each
// replica calls it in the background, for tokens that its requests will take (Bucket). No request
// ever waits for Redis. While Redis cannot be reached, each replica continues with its last share.
//
// All replicas together send, in any period, at most
//
//	limit * period + burst
//
// where burst is at least two tokens for each replica. There are exceptions. A replica that cannot reach Redis saves
// unused tokens, up to its part of the burst, and may send these in addition. A Redis that has lost its data does not
// know which tokens replicas hold, and so may give out one more burst. A replica that cannot reach Redis for longer
// than ReplicaTimeout, while others can, counts as dead. Then the others get its share, and its own requests come in
// addition. The requests of a replica that has never reached Redis also come in addition: limit / ExpectedReplicas.
//
// A replica that loses Redis uses the tokens that it holds until its lease ends, eight LeaseIntervals after its last
// call. From then on it is alone. The lease of a replica without traffic, which calls less often, is longer by a third
// of ReplicaTimeout.
//
// The clocks of replicas are never compared. Points in time are Redis' only. A replica measures durations from the
// arrival of a reply, which is later than the moment from which Redis measures them.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Options are the settings of fleet.
type Options struct {
	Redis Redis
	// Prefix begins all keys in Redis. Replicas with the same prefix share limits.
	Prefix string
	// ExpectedReplicas is the number of replicas, at least 1, among which a limit is divided before the first reply
	// of Redis.
	ExpectedReplicas int
	// LeaseInterval is the time between calls while requests arrive.
	LeaseInterval time.Duration
	// ReplicaTimeout is how long a replica that does not call keeps its share; at least 20
	// LeaseIntervals.
	ReplicaTimeout time.Duration
	Log            *zap.Logger
}

// heartbeat returns the time between calls while no requests arrive.
func (o *Options) heartbeat() time.Duration { return o.ReplicaTimeout / 3 }

// callTimeout bounds one exchange. An exchange and the longest lease after it take less than ReplicaTimeout together,
// so that tokens never outlive the replica's record in Redis.
func (o *Options) callTimeout() time.Duration { return o.ReplicaTimeout / 4 }

// Fleet is one replica's side of the shared limits. It must be closed.
type Fleet struct {
	opts Options
	id   string // of this replica, for the life of the process

	calls uint64 // number of calls so far; used by run only

	mu      sync.Mutex // guards the fields below; never held across I/O
	buckets map[string]*Bucket
	removed []string // names of SSPs whose records in Redis must still be removed
	closed  bool

	password atomic.Pointer[string]

	wake    chan struct{} // capacity 1: some buckets may need a call
	stop    context.CancelFunc
	stopped chan struct{} // closed when run has returned
}

// New returns a Fleet without SSPs, and starts calling. Redis need not be reachable.
func New(o Options) *Fleet {
	var id [8]byte
	rand.Read(id[:])
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{
		opts: o, id: hex.EncodeToString(id[:]), buckets: make(map[string]*Bucket),
		wake: make(chan struct{}, 1), stop: stop, stopped: make(chan struct{}),
	}
	f.SetPassword("")
	go f.run(ctx)
	return f
}

// Bucket returns the bucket of an SSP, which it creates if there is none, and sets its limit. limit is in requests
// per second, for the whole fleet, and must be above 0; burst must be at least 1.
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

// Keep drops the buckets of all SSPs that are not in names. Dropped buckets must not be used any more.
func (f *Fleet) Keep(names map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.buckets {
		if !names[name] {
			delete(f.buckets, name)
			f.removed = append(f.removed, name)
		}
	}
	f.call()
}

// SetPassword sets the password for later connections to Redis; "" = none.
func (f *Fleet) SetPassword(p string) { f.password.Store(&p) }

func (f *Fleet) open(ctx context.Context) (*session, error) {
	return f.opts.Redis.open(ctx, *f.password.Load())
}

// call wakes run, to check the buckets now.
func (f *Fleet) call() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// AwaitFirst waits until Redis was called for every bucket, with or without success, or until ctx has ended.
func (f *Fleet) AwaitFirst(ctx context.Context) {
	for _, b := range f.all() {
		select {
		case <-b.firstCallDone:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Fleet) all() []*Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.buckets))
}

// Close ends the calls. Until ctx ends, it removes this replica's records from Redis, so that other
// replicas get its share at once. Buckets continue alone.
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
	f.removeRecords(ctx)
}
