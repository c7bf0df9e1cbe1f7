package shaper

const (
	sets       = 1024 // sets of the table; a power of two, since the low bits of a hash choose the set
	setEntries = 8    // entries of a set

	// floor keeps the fading counts sent, fills and seen from becoming denormal numbers, on which arithmetic is slow: below
	// it, sent and fills are 0, and seen stays at it.
	floor = 1e-30
	// sentCeiling is the count at which sent and fills are halved. A float32 above 2^24 does not grow when 1 is added.
	sentCeiling = 1 << 23
)

// table holds what was learned of prefixes of segments. Its size is fixed, whatever values clients send: a new prefix
// takes the entry of the least seen prefix in its set.
type table struct {
	sets [sets][setEntries]entry
	used int // entries that hold a prefix
}

// entry is what was learned of one prefix. A zero tag marks an entry that holds no prefix.
type entry struct {
	tag   uint64  // hash of the prefix
	sent  float32 // requests with an outcome that taught; halves over the half-life
	fills float32 // fills among them
	run   float32 // fills that were expected since the last fill
	seen  float32 // sights of the prefix; halves every 10 minutes
}

// find returns the entry of the prefix with the given hash, or nil.
func (t *table) find(hash uint64) *entry {
	set := &t.sets[hash%sets]
	for i := range set {
		if set[i].tag == hash {
			return &set[i]
		}
	}
	return nil
}

// see counts a sight of the prefix with the given hash, and returns its entry. If the prefix has no entry, it takes
// the entry with the fewest sights in its set; see then returns nil.
func (t *table) see(hash uint64) *entry {
	if e := t.find(hash); e != nil {
		e.seen++
		return e
	}
	set := &t.sets[hash%sets]
	victim := &set[0]
	for i := range set {
		if set[i].seen < victim.seen {
			victim = &set[i]
		}
	}
	if victim.tag == 0 {
		t.used++
	}
	*victim = entry{tag: hash, seen: 1}
	return nil
}

// fade multiplies what all entries learned by learned, and their sights by seen.
func (t *table) fade(learned, seen float32) {
	for i := range t.sets {
		for j := range t.sets[i] {
			e := &t.sets[i][j]
			if e.tag == 0 {
				continue
			}
			e.sent *= learned
			if e.sent < floor {
				e.sent = 0
			}
			e.fills *= learned
			if e.fills < floor {
				e.fills = 0
			}
			e.seen = max(e.seen*seen, floor)
		}
	}
}

// mean returns the posterior mean of the prefix's rate of fills. The prior counts as half a fill, in as many requests
// as are needed for half a fill at the prior's rate.
func (e *entry) mean(prior float64) float64 {
	return (float64(e.fills) + 0.5) * prior / (float64(e.sent)*prior + 0.5)
}

// young reports whether the prior outweighs what the entry has learned.
func (e *entry) young(prior float64) bool { return float64(e.sent)*prior < 0.5 }

// learn adds an outcome of a request whose expected fills, as the entry knew them, are mean.
func (e *entry) learn(fill bool, mean float64) {
	if e.sent >= sentCeiling {
		e.sent, e.fills = e.sent/2, e.fills/2
	}
	e.sent++
	if fill {
		e.fills++
		e.run = 0
		return
	}
	if e.run += float32(mean); e.run > resetAfter {
		e.sent, e.fills, e.run = 0, 0, 0
	}
}
