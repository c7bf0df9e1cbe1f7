package fleet

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/rates"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
	// steadyFor is how long all calls must succeed before the log reports that Redis is back.
	steadyFor = time.Second
)

// connState is the state of run's connection to Redis.
type connState struct {
	session    *session      // nil if there is no connection
	backoff    time.Duration // after the last failure; 0 = none
	loggedAway bool          // the last log line said that Redis is away
	goodSince  time.Time     // since when calls succeed
}

// run calls Redis until ctx ends. New starts it; Close waits for it.
func (f *Fleet) run(ctx context.Context) {
	defer close(f.stopped)
	var l connState
	defer func() {
		if l.session != nil {
			l.session.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.wake:
			if l.backoff > 0 {
				continue // the timer is set
			}
		}
		err := f.round(ctx, &l)
		if ctx.Err() != nil {
			return
		}
		f.logChange(&l, err)
		if f.idle() {
			l.backoff = 0
			continue // until the next wake
		}
		wait := f.opts.LeaseInterval
		if l.backoff > 0 {
			wait = l.backoff
		}
		timer.Reset(rates.Jitter(wait, 0.1))
	}
}

// idle reports whether no bucket needs a call.
func (f *Fleet) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.buckets) == 0 && len(f.removed) == 0
}

// logChange logs that Redis is away or back, and sets the back-off.
func (f *Fleet) logChange(l *connState, err error) {
	now := time.Now()
	if err != nil {
		if l.session != nil {
			l.session.close() // the next connection may reach another server
			l.session = nil
		}
		l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
		if !l.loggedAway {
			l.loggedAway = true
			f.opts.Log.Warn("Redis is away: this replica continues with its last share of qps.limit; see fleet.redis",
				zap.String("address", f.opts.Redis.Address), zap.Error(err))
		}
		return
	}
	if l.backoff > 0 || l.goodSince.IsZero() {
		l.goodSince = now
	}
	l.backoff = 0
	if l.loggedAway && now.Sub(l.goodSince) >= steadyFor {
		l.loggedAway = false
		f.opts.Log.Info("Redis is back: replicas share qps.limit again", zap.String("address", f.opts.Redis.Address))
	}
}

// round calls for all buckets that are due. It returns the first error.
func (f *Fleet) round(ctx context.Context, l *connState) error {
	f.mu.Lock()
	gone := slices.DeleteFunc(f.removed, func(name string) bool { return f.buckets[name] != nil }) // names that were added again
	f.removed = nil
	var due []*Bucket // a bucket that is added again now is called in the next round, after the removal
	for _, b := range f.buckets {
		if b.due(b.Since(time.Now()), &f.opts) || l.backoff > 0 {
			due = append(due, b)
		}
	}
	f.mu.Unlock()
	if len(due) == 0 && len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.callTimeout())
	defer cancel()
	if l.session == nil {
		s, err := f.open(ctx)
		if err != nil {
			f.removeLater(gone)
			for _, b := range due {
				b.failures.Add(1)
				b.markFirstCall()
			}
			return err
		}
		l.session = s
	}
	err := f.lease(ctx, l.session, due)
	if len(gone) > 0 && err == nil {
		err = f.remove(ctx, l.session, gone)
	}
	if err != nil {
		f.removeLater(gone)
	}
	return err
}

// remove removes this replica's records of SSPs that were dropped. A key that cannot be used holds
// none.
func (f *Fleet) remove(ctx context.Context, s *session, names []string) error {
	commands := make([]command, len(names))
	for i, name := range names {
		commands[i] = command{"HDEL", []any{f.key(name), f.id}}
	}
	_, errs, err := s.pipeline(ctx, commands)
	for _, e := range errs {
		if err == nil && !concernsKey(e) {
			err = e
		}
	}
	return err
}

// removeLater keeps names for the next round.
func (f *Fleet) removeLater(names []string) {
	if len(names) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if f.buckets[name] == nil && len(f.removed) < 10000 {
			f.removed = append(f.removed, name)
		}
	}
}

// removeRecords removes all of this replica's records. If that fails, they time out.
func (f *Fleet) removeRecords(ctx context.Context) {
	var names []string
	for _, b := range f.all() {
		if b.replicas.Load() > 0 {
			names = append(names, b.name)
		}
	}
	if len(names) == 0 {
		return
	}
	s, err := f.open(ctx)
	if err == nil {
		err = f.remove(ctx, s, names)
		s.close()
	}
	if err != nil {
		f.opts.Log.Info("other replicas get this replica's share of qps.limit after fleet.replica_timeout, because Redis is away", zap.Error(err))
	}
}
