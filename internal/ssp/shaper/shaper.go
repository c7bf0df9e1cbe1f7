// Package shaper chooses the requests that a limit of an SSP drops: those with the lowest estimated rate of fills. A
// sample of what would be dropped, drawn at random, is sent all the same. It teaches the shaper the rates of what it
// drops, and measures how many fills that loses.
//
// A request belongs to a segment: the values of 1 to 4 keys, coarse to fine. The shaper counts requests and fills by
// prefixes of segments, and the rate of a coarser prefix is the prior of the finer one (score.go). Each second it sets
// the score from which requests pass (threshold.go, max_loss.go). Time and chance come from the caller.
package shaper

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// MaxKeys is the largest number of keys of a segment.
const MaxKeys = 4

// Settings of a Shaper.
type Settings struct {
	Limit   float64 // requests a second of this replica; 0 means that only MaxLoss drops
	Burst   int     // tokens of the limit
	Explore float64 // share of what is sent that is drawn at random from what would be dropped
	MaxLoss float64 // above 0: also drop below the limit, up to this share of the fills
	DryRun  bool    // all pass; the report says what would have been dropped
	Limits  bool    // in a dry run: Limit is in force, so that requests over it are dropped without regard to their scores
	Keys    int     // how many values a segment has, 1 to MaxKeys
}

// Segment holds the hashes of a segment's prefixes, the coarsest first.
type Segment [MaxKeys]uint64

// Kind says what a shaper decided.
type Kind uint8

// The decisions of a shaper.
const (
	Passed   Kind = iota // the score reaches the threshold, or many tokens are left: see chance
	Explored             // the score is below the threshold, but the request is in the random sample
	Dropped
)

func (k Kind) String() string { return [...]string{"passed", "explored", "dropped"}[k] }

// Decision is what Decide decided about one request. Learn needs it.
type Decision struct {
	Kind  Kind    // always Passed in a dry run
	Score float64 // estimated rate of fills

	would  Kind // what Kind is without a dry run
	bucket uint8
	weight float64 // how many requests the request stands for: 1/Shaper.explore if it was explored, else 1
}

// Shaper decides which requests to one SSP are dropped. It is safe for concurrent use.
type Shaper struct {
	mu       sync.Mutex
	settings Settings
	began    time.Time
	second   int64 // the running one, since began
	random   rand.PCG

	model    model
	learning learning
	arrivals arrivals
	fills    fillsByScore
	ledger   ledger

	threshold threshold // in force
	explore   float64   // probability with which a request below the threshold is sent
	weight    float64   // weightAt of the last threshold that did not let all requests pass
}

// New returns a Shaper that knows nothing. The seed determines which requests it explores.
func New(settings Settings, seed uint64, now time.Time) *Shaper {
	s := &Shaper{random: *rand.NewPCG(seed, seed), settings: settings, began: now, threshold: passAll, explore: 1, weight: 1}
	s.model.start(settings.Keys)
	return s
}

// Set changes the settings, but not the number of keys. What was learned stays. The threshold follows from the next
// second on.
func (s *Shaper) Set(settings Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = settings
}

// SetLimit changes this replica's share of a limit that replicas share. A share of 0 drops all requests. The threshold
// follows from the next second on. Without a limit in the settings, SetLimit has no effect.
func (s *Shaper) SetLimit(perSecond float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings.Limit > 0 {
		s.settings.Limit = max(perSecond, minLimit)
	}
}

// minLimit stands for a limit of 0 requests a second.
const minLimit = 1e-9

// hashSeed keeps clients from choosing values whose prefixes share an entry.
var hashSeed = maphash.MakeSeed()

// Hash sets the segment's value of the key with the given number, counted from 0. The values of coarser keys must have
// been set.
func (s *Shaper) Hash(key int, segment *Segment, value []byte) {
	segment.set(key, maphash.Bytes(hashSeed, value))
}

// set sets the hash of the prefix that ends with the given key, whose value has the given hash.
func (seg *Segment) set(key int, value uint64) {
	parent := uint64(0x9e3779b97f4a7c15)
	if key > 0 {
		parent = seg[key-1]
	}
	high, low := bits.Mul64(parent^0xa0761d6478bd642f, value^0xe7037ed1a0b428db)
	seg[key] = high ^ low
}

// Decide decides whether a request of the segment is sent. tokens are those left in the bucket of the limit.
func (s *Shaper) Decide(segment *Segment, tokens float64, now time.Time) Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	score := s.model.score(segment)
	bucket := bucketOf(score)
	s.arrivals.add(bucket)
	s.fills.arrivals[bucket]++
	d := Decision{Score: score, bucket: uint8(bucket), weight: 1}
	if chance := s.chance(bucket, tokens); chance < 1 && s.float() >= chance {
		d.would = Dropped
		if s.float() < s.explore {
			d.would = Explored
		}
	}
	if !s.settings.DryRun {
		d.Kind = d.would
		if d.Kind == Explored {
			d.weight = 1 / s.explore
		}
	}
	s.ledger.decided(&d)
	return d
}

// chance returns the probability that a request whose score is in the given bucket passes. While few tokens are left,
// the threshold is raised: otherwise they would run out, and requests would be dropped without regard to their scores.
// While many are left, every request passes, so that no tokens are wasted; but not with MaxLoss or a burst below 10.
func (s *Shaper) chance(bucket int, tokens float64) float64 {
	raised := 0
	if s.settings.Limit > 0 && !s.settings.DryRun {
		switch burst := float64(s.settings.Burst); {
		case tokens < burst/4 && s.threshold != passAll:
			raised = octave
		case tokens >= burst*3/4 && burst >= 10 && s.settings.MaxLoss == 0:
			return 1
		}
	}
	return s.threshold.chance(bucket, raised)
}

// float returns a random number from 0 up to 1.
func (s *Shaper) float() float64 { return float64(s.random.Uint64()>>11) / (1 << 53) }

// Unsent takes back the decision that a request is sent (it passed or was explored), since the request found no token.
func (s *Shaper) Unsent(d Decision, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	s.ledger.takeBack(&d)
}

// Learn adds the outcome of a request: a fill or a no-bid. The caller leaves out requests with other outcomes.
func (s *Shaper) Learn(segment *Segment, d Decision, fill bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	s.ledger.outcome(&d, fill)
	if !s.learning.teaches(fill, s.model.mean()) {
		return
	}
	s.model.learn(segment, fill)
	if fill {
		s.fills.add(int(d.bucket), d.weight)
	}
}

// advance does what is due each second.
func (s *Shaper) advance(now time.Time) {
	second := int64(now.Sub(s.began) / time.Second)
	if second <= s.second {
		return
	}
	elapsed := float64(second - s.second)
	s.second = second
	s.learning.advance(elapsed, &s.model)
	s.arrivals.advance(elapsed)
	s.fills.advance(elapsed)
	s.ledger.advance(second)
	s.setThreshold()
}

// setThreshold sets the threshold and the probability of exploration for the next second.
func (s *Shaper) setThreshold() {
	t := passAll
	if limit := s.settings.Limit; limit > 0 && s.arrivals.rate > belowLimit*limit {
		t = s.arrivals.forLimit(limit * (1 - s.settings.Explore))
	}
	if s.settings.MaxLoss > 0 {
		if l := s.fills.threshold(s.settings.MaxLoss, &s.arrivals, s.weightAt); l.position() > t.position() {
			t = l
		}
	}
	s.threshold, s.explore = t, exploration(s.settings.Explore, t.share)
	if t.share < 1 {
		s.weight = s.weightAt(t.share)
	}
}

// weightAt returns the weight of an explored fill while a share of arrivals passes. In a dry run it is 1, since all
// requests pass.
func (s *Shaper) weightAt(share float64) float64 {
	if s.settings.DryRun {
		return 1
	}
	return 1 / exploration(s.settings.Explore, share)
}

// Report returns what the shaper did until now.
func (s *Shaper) Report(now time.Time) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	weight := s.weight
	if !s.settings.DryRun {
		weight--
	}
	r := Report{
		State:        s.state(),
		Paused:       s.learning.paused(),
		Requests:     s.ledger.requests,
		Fills:        s.ledger.fills,
		LostFills:    s.ledger.lost,
		LostVariance: s.ledger.variance,
		TenMinutes:   s.ledger.window(10, s.second, weight),
		Hour:         s.ledger.window(slots, s.second, weight),
		Threshold:    s.threshold.score(),
		Explore:      s.explore,
		Segments:     s.model.table.used,
		Ranges:       s.ledger.hourByScore(),
	}
	r.Kept = s.forecast(&r.TenMinutes)
	return r
}

// state returns what s knows.
func (s *Shaper) state() State {
	switch {
	case s.ledger.cold():
		return Cold
	case s.learning.paused():
		return Paused
	}
	return Learning
}

// Explanation is what the shaper knows of one segment, and what it would do.
type Explanation struct {
	Prefixes  []Prefix // down to the first without an entry
	Score     float64  // estimated rate of fills
	Threshold float64  // score from which requests pass; 0 lets everything pass
	Chance    float64  // probability with which the score passes by the threshold alone, whatever tokens are left
	Explore   float64  // probability with which a request that does not pass is sent
}

// Prefix is what the shaper knows of one prefix of a segment.
type Prefix struct {
	Known bool    // the prefix has an entry
	Sent  float64 // N: requests with an outcome that taught
	Fills float64 // F: fills among them
	Worth float64 // ρ: what young prefixes of this length are worth, compared with their parents
	Mean  float64 // p: posterior mean of the rate of fills
}

// Explain returns what is known of the segment. It counts nothing.
func (s *Shaper) Explain(segment *Segment, now time.Time) Explanation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(now)
	e := Explanation{Threshold: s.threshold.score(), Explore: s.explore}
	e.Prefixes, e.Score = s.model.explain(segment)
	e.Chance = s.threshold.chance(bucketOf(e.Score), 0)
	return e
}
