package load

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/sspsim"
)

// Number is the placeholder for the request's number in a path, a field value or a body. The number
// has numberDigits digits.
const (
	Number       = "{n}"
	numberDigits = 10
)

// Field is a header field.
type Field struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// Template is one kind of request.
type Template struct {
	Name    string      `yaml:"name"`
	Preset  string      `yaml:"preset"`  // name of a preset, which sets the keys that a scenario omits
	Weight  float64     `yaml:"weight"`  // weight in the random choice among templates; 0 is 1
	Method  string      `yaml:"method"`  // GET or POST
	Path    string      `yaml:"path"`    // origin-form with the query; may contain Number
	Headers []Field     `yaml:"headers"` // values may contain Number
	Body    sspsim.Size `yaml:"body"`    // POST only
	// JSON makes each body an OpenRTB bid request with Number as its id. Otherwise the body is filler.
	// A bid request is padded to its size and never cut.
	JSON bool `yaml:"json"`
	// Literal is the text of the body and may contain Number. It excludes Body and JSON.
	Literal string `yaml:"literal"`
}

// Request is an encoded request without its number.
type Request struct {
	Class   int // index of its template
	Raw     []byte
	numbers []int // offsets in Raw for the number
	Body    []byte
	Path    string
}

// Set holds the requests of a run.
type Set struct {
	variants [][]Request // for each template
	pick     []float64   // cumulative weights; the last is 1
	next     []int       // index of the next variant, for each template
	random   *rand.Rand
}

// bodyVariants is the number of bodies of a template with random sizes. The sizes are the quantiles
// of the distribution.
const bodyVariants = 199

// NewSet encodes templates for a host. close adds "Connection: close" to each request. seed
// determines the random choices.
func NewSet(host string, templates []Template, close bool, seed uint64) *Set {
	s := &Set{next: make([]int, len(templates)), random: rand.New(rand.NewPCG(seed, 1))}
	sum := 0.0
	for i, t := range templates {
		sum += cmp.Or(t.Weight, 1)
		s.pick = append(s.pick, sum)
		n := 1
		if t.Body.P50 > 0 {
			n = bodyVariants
		}
		variants := make([]Request, n)
		for v := range variants {
			variants[v] = encode(host, &templates[i], i, t.Body.At((float64(v)+0.5)/float64(n)), close)
		}
		s.random.Shuffle(n, func(a, b int) { variants[a], variants[b] = variants[b], variants[a] })
		s.variants = append(s.variants, variants)
	}
	for i := range s.pick {
		s.pick[i] /= sum
	}
	return s
}

// Next chooses a request at random.
func (s *Set) Next() *Request {
	class := 0
	if len(s.pick) > 1 {
		for r := s.random.Float64(); class < len(s.pick)-1 && r >= s.pick[class]; {
			class++
		}
	}
	variants := s.variants[class]
	i := s.next[class]
	s.next[class]++
	if s.next[class] == len(variants) {
		s.next[class] = 0
	}
	return &variants[i]
}

// Append appends the request with number n to dst.
func (r *Request) Append(dst []byte, n uint64) []byte {
	start := len(dst)
	dst = append(dst, r.Raw...)
	for _, at := range r.numbers {
		putNumber(dst[start+at:start+at+numberDigits], n)
	}
	return dst
}

// putNumber writes n to dst as numberDigits digits.
func putNumber(dst []byte, n uint64) {
	for i := numberDigits - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// Fill replaces each Number in text with n.
func Fill(text string, n uint64) string {
	if !strings.Contains(text, Number) {
		return text
	}
	var b [numberDigits]byte
	putNumber(b[:], n)
	return strings.ReplaceAll(text, Number, string(b[:]))
}

func encode(host string, t *Template, class, size int, close bool) Request {
	var body []byte
	switch {
	case t.Method != "POST":
	case t.Literal != "":
		body = []byte(t.Literal)
	case t.JSON:
		body = bidRequest(size)
	default:
		body = bytes.Repeat([]byte("x"), size)
	}
	// Number is shorter than the digits that replace it.
	onWire := bytes.ReplaceAll(body, []byte(Number), bytes.Repeat([]byte("0"), numberDigits))

	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", t.Method, t.Path, host)
	for _, f := range t.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	if close {
		b.WriteString("Connection: close\r\n")
	}
	if t.Method == "POST" {
		if t.JSON && !slices.ContainsFunc(t.Headers,
			func(f Field) bool { return strings.EqualFold(f.Name, "content-type") }) {
			b.WriteString("Content-Type: application/json\r\n")
		}
		b.WriteString("Content-Length: " + strconv.Itoa(len(onWire)) + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)

	r := Request{Class: class, Body: body, Path: t.Path}
	for text := b.Bytes(); ; {
		i := bytes.Index(text, []byte(Number))
		if i < 0 {
			r.Raw = append(r.Raw, text...)
			return r
		}
		r.Raw = append(r.Raw, text[:i]...)
		r.numbers = append(r.numbers, len(r.Raw))
		r.Raw = append(r.Raw, "0000000000"...)
		text = text[i+len(Number):]
	}
}

// bidRequest returns an OpenRTB 2.6 bid request of size bytes. A smaller size than its minimum has
// no effect.
func bidRequest(size int) []byte {
	const before = `{"id":"` + Number + `","at":2,"cur":["EUR"],"imp":[{"id":"1","tagid":"top-banner","secure":1,"bidfloor":0.42,"banner":{"w":300,"h":250,"pos":1,"api":[3,5,6]}}],` +
		`"site":{"id":"4711","domain":"publisher.example","page":"https://publisher.example/news/article-12345","publisher":{"id":"123456"}},` +
		`"device":{"ua":"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15","ip":"203.0.113.77","language":"en","devicetype":4,"os":"iOS"},` +
		`"regs":{"gdpr":1},"user":{"consent":"CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA","eids":"`
	const after = `"}}`
	pad := size - len(before) - len(after) - (numberDigits - len(Number))
	return []byte(before + strings.Repeat("e", max(pad, 0)) + after)
}
