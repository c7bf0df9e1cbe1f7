package load

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/test/sspsim"
)

// Number is the placeholder for the request's number in a path, a field value or a body. The number
// has numberDigits digits.
const (
	Number       = "{n}"
	numberDigits = 10
)

// Field is a header field.
type Field struct{ Name, Value string }

// Template is one kind of request.
type Template struct {
	Name    string
	Weight  float64     // weight in the random choice among templates; 0 is 1
	Method  string      // GET or POST
	Path    string      // origin-form with the query; may contain Number
	Headers []Field     // values may contain Number
	Body    sspsim.Size // POST only
	// JSON makes each body an OpenRTB bid request with Number as its id. Otherwise the body is filler.
	// A bid request is padded to its size and never cut.
	JSON bool
	// Literal is the text of the body and may contain Number. It excludes Body and JSON.
	Literal string
	// Segments are the numbers of values of the placeholders {1}, {2} and so on of Path, coarse to fine. Each combination
	// of values is a segment, and requests are distributed over the segments by Zipf's law.
	Segments []int
}

// request is an encoded request without its number.
type request struct {
	class int      // index of its template
	rate  float64  // sspsim.FillRate of its segment; 0 without segments
	parts [][]byte // the bytes before, between and after the numbers
}

// set holds the requests of a run.
type set struct {
	variants [][]request // for each template
	pick     []float64   // cumulative weights; the last is 1
	next     []int       // index of the next variant, for each template without segments
	zipf     [][]float64 // as pick, for the variants of each template with segments
	random   *rand.Rand
}

// bodyVariants is the number of bodies of a template with random sizes. The sizes are the quantiles
// of the distribution.
const bodyVariants = 199

// newSet encodes the templates of a plan. The random choices are the same in each run.
func newSet(p *Plan) *set {
	s := &set{next: make([]int, len(p.Templates)), random: rand.New(rand.NewPCG(0, 1))}
	var weights []float64
	for class, t := range p.Templates {
		weights = append(weights, cmp.Or(t.Weight, 1))
		n := 1
		var ranks []float64 // weights by Zipf's law
		if t.Body.P50 > 0 {
			n = bodyVariants
		}
		if len(t.Segments) > 0 {
			n = t.segments()
			for i := range n {
				ranks = append(ranks, 1/float64(i+1))
			}
		}
		variants := make([]request, n)
		for v := range variants {
			t, rate := t.in(v)
			text := t.encode(p.Addr, t.Body.At((float64(v)+0.5)/float64(n)), p.Protocol == Close)
			variants[v] = request{class, rate, bytes.Split(text, []byte(Number))}
		}
		s.random.Shuffle(n, func(a, b int) { variants[a], variants[b] = variants[b], variants[a] })
		s.variants, s.zipf = append(s.variants, variants), append(s.zipf, cumulative(ranks))
	}
	s.pick = cumulative(weights)
	return s
}

// cumulative returns the cumulative sums of the weights, of which the last is 1.
func cumulative(weights []float64) []float64 {
	sum := 0.0
	for i, w := range weights {
		sum += w
		weights[i] = sum
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

// segments returns how many segments t has.
func (t *Template) segments() int {
	n := 1
	for _, values := range t.Segments {
		n *= values
	}
	return n
}

// in returns t with the values of a segment in place of their placeholders, and the FillRate of the segment.
func (t Template) in(segment int) (of Template, rate float64) {
	if len(t.Segments) == 0 {
		return t, 0
	}
	var values, pairs []string
	for i, n := range slices.Backward(t.Segments) {
		values = append(values, strconv.Itoa(segment%n))
		pairs = append(pairs, fmt.Sprintf("{%d}", i+1), values[len(values)-1])
		segment /= n
	}
	slices.Reverse(values)
	t.Path = strings.NewReplacer(pairs...).Replace(t.Path)
	return t, sspsim.FillRate(values...)
}

// Segment is a segment of a plan's requests.
type Segment struct {
	Share float64 // of all requests
	Rate  float64 // sspsim.FillRate of its values
}

// Segments returns the segments of the requests of all templates.
func (p *Plan) Segments() (all []Segment) {
	s := newSet(p)
	weight := 0.0 // of the templates before
	for class, zipf := range s.zipf {
		share := 0.0
		for i, until := range zipf {
			all = append(all, Segment{(until - share) * (s.pick[class] - weight), s.variants[class][i].rate})
			share = until
		}
		weight = s.pick[class]
	}
	return all
}

func (s *set) choose() *request {
	class := 0
	if len(s.pick) > 1 {
		class, _ = slices.BinarySearch(s.pick, s.random.Float64())
	}
	variants := s.variants[class]
	if zipf := s.zipf[class]; len(zipf) > 0 {
		i, _ := slices.BinarySearch(zipf, s.random.Float64())
		return &variants[i]
	}
	i := s.next[class]
	s.next[class] = (i + 1) % len(variants)
	return &variants[i]
}

// append appends the request with number n to dst.
func (r *request) append(dst []byte, n uint64) []byte {
	for i, part := range r.parts {
		if i > 0 {
			dst = appendNumber(dst, n)
		}
		dst = append(dst, part...)
	}
	return dst
}

func appendNumber(dst []byte, n uint64) []byte {
	var digits [numberDigits]byte
	for i := numberDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}

// isNumber reports whether text is n, as appendNumber writes it.
func isNumber(text []byte, n uint64) bool {
	var want [numberDigits]byte
	return string(text) == string(appendNumber(want[:0], n))
}

// Fill replaces each Number in text with n.
func Fill(text string, n uint64) string {
	return strings.ReplaceAll(text, Number, string(appendNumber(nil, n)))
}

// encode returns a request with a body of size bytes, and with Number in place of the request's number.
func (t *Template) encode(host string, size int, close bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", t.Method, t.Path, host)
	for _, f := range t.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if close {
		b.WriteString("Connection: close\r\n")
	}
	if t.Method != "POST" {
		b.WriteString("\r\n")
		return b.Bytes()
	}
	body := t.Literal
	switch {
	case body != "":
	case t.JSON:
		body = bidRequest(size)
	default:
		body = strings.Repeat("x", size)
	}
	isContentType := func(f Field) bool { return strings.EqualFold(f.Name, "content-type") }
	if t.JSON && !slices.ContainsFunc(t.Headers, isContentType) {
		b.WriteString("Content-Type: application/json\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(Fill(body, 0)), body)
	return b.Bytes()
}

// bidRequest returns an OpenRTB 2.6 bid request of size bytes, or of its minimum size if size is smaller.
func bidRequest(size int) string {
	const before = `{"id":"` + Number + `","at":2,"cur":["EUR"],"imp":[{"id":"1","tagid":"top-banner","secure":1,"bidfloor":0.42,"banner":{"w":300,"h":250,"pos":1,"api":[3,5,6]}}],` +
		`"site":{"id":"4711","domain":"publisher.example","page":"https://publisher.example/news/article-12345","publisher":{"id":"123456"}},` +
		`"device":{"ua":"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15","ip":"203.0.113.77","language":"en","devicetype":4,"os":"iOS"},` +
		`"regs":{"gdpr":1},"user":{"consent":"CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA","eids":"`
	const after = `"}}`
	pad := size - len(before) - len(after) - (numberDigits - len(Number))
	return before + strings.Repeat("e", max(pad, 0)) + after
}
