package shaper

// model estimates the rate of fills of a segment: the posterior mean of each prefix is the prior of the next finer one.
type model struct {
	keys  int
	table table

	sent, fills float64        // outcomes of the SSP, and fills among them; both halve over the half-life
	worth       [MaxKeys]worth // of each prefix's length
}

// worth is how the fills of young prefixes of one length compare with those that their parents' rates promise. Made-up
// values of a key are always young, and fill less than others: worth then ranks them below what is known.
type worth struct {
	fills, expected float64
	ratio           float64 // fills / expected
}

// worthMemory is the count of expected fills at which both sums of a worth are halved.
const worthMemory = 50

// start makes m know nothing.
func (m *model) start(keys int) {
	*m = model{keys: keys}
	for i := range m.worth {
		m.worth[i] = worth{1, 1, 1}
	}
}

// mean returns the SSP's rate of fills.
func (m *model) mean() float64 { return (m.fills + 0.01) / (m.sent + 1) }

// prior returns the rate of a prefix of which nothing is known, from its parent's rate.
func (w *worth) prior(parent float64) float64 { return min(1, w.ratio*parent) }

// learn adds an outcome of a young prefix.
func (w *worth) learn(fill bool, parent float64) {
	w.expected += parent
	if fill {
		w.fills++
	}
	if w.expected > worthMemory {
		w.fills, w.expected = w.fills/2, w.expected/2
	}
	w.ratio = w.fills / w.expected
}

// score counts a sight of the segment's prefixes, down to the first without an entry, and returns the estimated rate
// of fills of the segment.
func (m *model) score(segment *Segment) float64 {
	p := m.mean()
	for i := range m.keys {
		prior := m.worth[i].prior(p)
		e := m.table.see(segment[i])
		if e == nil {
			return prior
		}
		p = e.mean(prior)
	}
	return p
}

// learn adds an outcome to all prefixes of the segment that have an entry.
func (m *model) learn(segment *Segment, fill bool) {
	p, known := m.mean(), true
	m.sent++
	if fill {
		m.fills++
	}
	for i := range m.keys {
		prior := m.worth[i].prior(p)
		e := m.table.find(segment[i])
		if known && (e == nil || e.young(prior)) {
			m.worth[i].learn(fill, p)
		}
		if e == nil {
			// A finer prefix may have kept its entry when this one lost its own.
			p, known = prior, false
			continue
		}
		p = e.mean(prior)
		e.learn(fill, p)
	}
}

// explain returns what is known of the segment's prefixes, down to the first without an entry, and the score.
func (m *model) explain(segment *Segment) (prefixes []Prefix, score float64) {
	p := m.mean()
	for i := range m.keys {
		w := &m.worth[i]
		prefix := Prefix{Worth: w.ratio, Mean: w.prior(p)}
		e := m.table.find(segment[i])
		if e != nil {
			prefix.Known, prefix.Sent, prefix.Fills, prefix.Mean = true, float64(e.sent), float64(e.fills), e.mean(prefix.Mean)
		}
		prefixes, p = append(prefixes, prefix), prefix.Mean
		if e == nil {
			break
		}
	}
	return prefixes, p
}

// fade multiplies what was learned by learned, and the sights of prefixes by seen.
func (m *model) fade(learned, seen float64) {
	m.sent *= learned
	m.fills *= learned
	m.table.fade(float32(learned), float32(seen))
}
