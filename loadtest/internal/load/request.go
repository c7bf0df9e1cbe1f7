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

// Number stands for the request's own number in a path, a header value or a
// body; it is written as NumberDigits digits.
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
	Preset  string      `yaml:"preset"`  // of a scenario's file: fills in what is not given
	Weight  float64     `yaml:"weight"`  // of the draw among templates; 0 is 1
	Method  string      `yaml:"method"`  // GET or POST
	Path    string      `yaml:"path"`    // origin-form, with the query; may hold Number
	Headers []Field     `yaml:"headers"` // values may hold Number
	Body    sspsim.Size `yaml:"body"`    // POST only
	// JSON makes bodies OpenRTB bid requests, whose id is Number; otherwise they
	// are filler. A bid request is padded to its size and never cut.
	JSON bool `yaml:"json"`
	// Literal is the body as it is; Body and JSON are unused then. May hold Number.
	Literal string `yaml:"literal"`
}

// Request is an encoded request that needs only its number.
type Request struct {
	Class   int // index of the template
	Raw     []byte
	numbers []int // where in Raw the number goes
	Body    []byte
	Path    string
}

// Set is the requests that a run draws from.
type Set struct {
	Templates []Template
	variants  [][]Request // by template
	pick      []float64   // cumulative weights, the last is 1
	next      []int       // variant, by template
	random    *rand.Rand
}

// bodyVariants is how many bodies of different sizes stand for a spread. They
// are its quantiles, so that their sizes are the spread's.
const bodyVariants = 199

// NewSet encodes templates for a host. close asks the peer to close behind
// every response. seed is that of the draws.
func NewSet(host string, templates []Template, close bool, seed uint64) *Set {
	s := &Set{Templates: templates, next: make([]int, len(templates)), random: rand.New(rand.NewPCG(seed, 1))}
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

// Next draws a request. It is valid for the life of the Set.
func (s *Set) Next() *Request {
	class := 0
	if len(s.pick) > 1 {
		for r := s.random.Float64(); class < len(s.pick)-1 && r >= s.pick[class]; {
			class++
		}
	}
	variants := s.variants[class]
	i := s.next[class]
	if s.next[class]++; s.next[class] == len(variants) {
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

// putNumber writes n to dst as NumberDigits digits.
func putNumber(dst []byte, n uint64) {
	for i := numberDigits - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// Fill returns text with the number in place of every Number.
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
	// The number is shorter in the template than on the wire.
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
		if t.JSON && !slices.ContainsFunc(t.Headers, func(f Field) bool { return strings.EqualFold(f.Name, "content-type") }) {
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

// bidRequest returns an OpenRTB 2.6 bid request of size bytes, or of its
// smallest size if that is more.
func bidRequest(size int) []byte {
	const before = `{"id":"` + Number + `","at":2,"cur":["EUR"],"imp":[{"id":"1","tagid":"top-banner","secure":1,"bidfloor":0.42,"banner":{"w":300,"h":250,"pos":1,"api":[3,5,6]}}],` +
		`"site":{"id":"4711","domain":"publisher.example","page":"https://publisher.example/news/article-12345","publisher":{"id":"123456"}},` +
		`"device":{"ua":"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15","ip":"203.0.113.77","language":"en","devicetype":4,"os":"iOS"},` +
		`"regs":{"gdpr":1},"user":{"consent":"CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA","eids":"`
	const after = `"}}`
	pad := size - len(before) - len(after) - (numberDigits - len(Number))
	return []byte(before + strings.Repeat("e", max(pad, 0)) + after)
}
