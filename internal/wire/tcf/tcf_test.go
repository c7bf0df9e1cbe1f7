package tcf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// writer writes numbers of any number of bits.
type writer struct {
	data []byte
	n    int
}

func (w *writer) put(bits int, values ...int) {
	for _, v := range values {
		for i := bits - 1; i >= 0; i-- {
			if w.n%8 == 0 {
				w.data = append(w.data, 0)
			}
			w.data[w.n/8] |= byte(v>>i&1) << (7 - w.n%8)
			w.n++
		}
	}
}

// ids writes a bit for each id from 1 to n.
func (w *writer) ids(n int, set []int) {
	bits := make([]int, n+1)
	for _, id := range set {
		bits[id] = 1
	}
	w.put(1, bits[1:]...)
}

// ranges writes ranges of vendors, each as its first and last id.
func (w *writer) ranges(list ...[2]int) {
	w.put(12, len(list))
	for _, r := range list {
		if r[0] == r[1] {
			w.put(1, 0)
			w.put(16, r[0])
		} else {
			w.put(1, 1)
			w.put(16, r[0], r[1])
		}
	}
}

type restriction struct {
	purpose, kind int
	vendors       [2]int
}

// core is the core segment of a consent string.
type core struct {
	consent, interest   []int // purposes
	vendors, interested []int // vendors with consent and with legitimate interest, up to 80
	asRanges            bool
	restrictions        []restriction
}

func (c core) data() []byte {
	var w writer
	w.put(6, 2)
	w.put(36, 15_000_000_000, 15_000_000_000)
	w.put(12, 10, 1)
	w.put(6, 1, 3, 4) // screen and language
	w.put(12, 48)     // version of the vendor list
	w.put(6, 4)
	w.put(14, 1<<13) // service-specific
	w.ids(24, c.consent)
	w.ids(24, c.interest)
	w.put(1, 0)
	w.put(6, 3, 4)
	for _, vendors := range [][]int{c.vendors, c.interested} {
		w.put(16, 80)
		if !c.asRanges {
			w.put(1, 0)
			w.ids(80, vendors)
			continue
		}
		var list [][2]int
		for _, v := range vendors {
			list = append(list, [2]int{v, v})
		}
		w.put(1, 1)
		w.ranges(list...)
	}
	w.put(12, len(c.restrictions))
	for _, r := range c.restrictions {
		w.put(6, r.purpose)
		w.put(2, r.kind)
		w.ranges(r.vendors)
	}
	return w.data
}

func (c core) String() string { return base64.RawURLEncoding.EncodeToString(c.data()) }

// granted grants vendor 76 purposes 1, 2 and 7 with consent, and 7 and 10 with legitimate interest.
func granted(restrictions ...restriction) core {
	return core{consent: []int{1, 2, 7}, interest: []int{7, 10}, vendors: []int{3, 76}, interested: []int{76, 80}, restrictions: restrictions}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	needs := func(vendor int, purposes ...int) Requirement { return Requirement{Vendor: vendor, Purposes: purposes} }
	claims := func(vendor int, purposes ...int) Requirement {
		return Requirement{Vendor: vendor, LegitimateInterests: purposes}
	}
	both := Requirement{Vendor: 76, Purposes: []int{1, 2, 7}, LegitimateInterests: []int{10}}
	all := [2]int{1, 32767}
	for _, tt := range []struct {
		restrictions []restriction
		r            Requirement
		lack         string
	}{
		{nil, both, ""},
		{nil, needs(76), ""},
		{nil, needs(3, 1), ""},
		{nil, needs(4), "vendor 4 has no consent"},
		{nil, needs(0), "vendor 0 has no consent"},
		{nil, needs(80, 1), "vendor 80 has no consent"},
		{nil, needs(81, 1), "vendor 81 has no consent"},
		{nil, needs(65535, 1), "vendor 65535 has no consent"},
		{nil, needs(76, 1, 3), "purpose 3 has no consent"},
		{nil, needs(76, 24), "purpose 24 has no consent"},
		{nil, claims(76, 10), ""},
		{nil, claims(80, 7, 10), ""},
		{nil, claims(3, 7), "vendor 3 has no legitimate interest"},
		{nil, claims(76, 2), "purpose 2 has no legitimate interest"},
		{nil, Requirement{Vendor: 80, Purposes: []int{1}, LegitimateInterests: []int{7}}, "vendor 80 has no consent"},
		{nil, Requirement{Vendor: 3, Purposes: []int{1}, LegitimateInterests: []int{7}}, "vendor 3 has no legitimate interest"},

		{[]restriction{{2, 0, all}}, both, "a publisher restriction forbids purpose 2"},
		{[]restriction{{2, 1, all}}, both, ""},
		{[]restriction{{2, 2, all}}, both, "a publisher restriction requires legitimate interest for purpose 2"},
		{[]restriction{{10, 0, all}}, both, "a publisher restriction forbids purpose 10"},
		{[]restriction{{10, 1, all}}, both, "a publisher restriction requires consent for purpose 10"},
		{[]restriction{{10, 2, all}}, both, ""},
		{[]restriction{{7, 1, all}}, claims(76, 7), "a publisher restriction requires consent for purpose 7"},
		{[]restriction{{7, 1, all}}, needs(76, 7), ""},
		{[]restriction{{2, 0, [2]int{76, 76}}}, both, "a publisher restriction forbids purpose 2"},
		{[]restriction{{2, 0, [2]int{76, 77}}}, both, "a publisher restriction forbids purpose 2"},
		{[]restriction{{2, 0, [2]int{77, 78}}}, both, ""},
		{[]restriction{{2, 0, [2]int{70, 75}}, {2, 1, all}, {7, 2, [2]int{1, 80}}}, both, "a publisher restriction requires legitimate interest for purpose 7"},
		{[]restriction{{2, 3, all}, {3, 0, all}}, both, ""},

		// Another decoder might use the first of two lists of vendors.
		{[]restriction{{2, 0, all}, {2, 0, [2]int{1, 1}}}, both, "the request has no readable TCF 2 consent string for vendor 76"},
	} {
		c := granted(tt.restrictions...)
		for _, c.asRanges = range []bool{false, true} {
			for _, more := range []string{"", ".IAAA", ".", "..?"} {
				consent := New(true, []byte(c.String()+more))
				testsupport.Equal(t, consent.Lack(&tt.r), tt.lack, "%[2]v of %[3]v lacks %[1]q", tt.r, c)
				testsupport.Equal(t, consent.Decide(&tt.r).Allows(), tt.lack == "", "%[2]v of %[3]v is allowed: %[1]v", tt.r, c)
			}
		}
	}
}

func TestRequestsWithoutAReadableString(t *testing.T) {
	t.Parallel()
	r := Requirement{Vendor: 76, Purposes: []int{1}}
	text := granted().String()
	long := core{vendors: []int{76}, consent: []int{1}}.String()
	padded := func(n int) string { return long + string(bytes.Repeat([]byte("A"), n-len(long))) }
	ranges := func(n int) string {
		return core{asRanges: true, vendors: slices.Repeat([]int{76}, n), consent: []int{1}}.String()
	}
	for _, tt := range []struct {
		consent *Consent
		want    Decision
	}{
		{New(true, []byte(text)), Allowed},
		{New(false, []byte(text)), NotApplicable},
		{New(false, nil), NotApplicable},
		{New(false, []byte("?")), NotApplicable},
		{New(true, nil), NoConsent},
		{New(true, []byte(core{}.String())), NoConsent},
		{OfUnreadable(), Unreadable},
		{New(true, []byte(text+"\n")), Unreadable},
		{New(true, []byte(text[:9]+"\r\n"+text[9:])), Unreadable},
		{New(true, []byte("."+text)), Unreadable},
		{New(true, []byte("B"+text[1:])), Unreadable}, // version 1
		{New(true, []byte("D"+text[1:])), Unreadable}, // version 3
		{New(true, []byte("BOEFEAyOEFEAyAHABDENAI4AAAB9vABAASA")), Unreadable},
		{New(true, []byte(text+"=")), Unreadable},
		{New(true, []byte(" "+text)), Unreadable},
		{New(true, []byte(text[:20]+"+"+text[21:])), Unreadable},
		{New(true, []byte("C")), Unreadable},
		{New(true, []byte(padded(8192))), Allowed},
		{New(true, []byte(padded(8192)+".AAAA")), Allowed},
		{New(true, []byte(padded(8196))), Unreadable},
		{New(true, []byte(ranges(2874))), Allowed}, // 8191 characters
		{New(true, []byte(ranges(2875))), Unreadable},
	} {
		testsupport.Equal(t, tt.consent.Decide(&r), tt.want, "it is %v")
	}
	for d, want := range []string{"allowed", "not_applicable", "no_consent", "unreadable"} {
		testsupport.Equal(t, Decision(d).String(), want, "the label is %q")
	}
}

// A string that lacks a bit never holds. Its last characters may be nothing but padding.
func TestCutAndRandomStringsNeverHold(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(1, 2))
	r := Requirement{Vendor: 76}
	for _, c := range []core{granted(), granted(restriction{2, 0, [2]int{1, 5}}, restriction{3, 1, [2]int{9, 9}})} {
		for _, c.asRanges = range []bool{false, true} {
			data := c.data()
			for n := 1; n < len(data); n++ {
				consent := New(true, []byte(base64.RawURLEncoding.EncodeToString(data[:n])))
				testsupport.Equal(t, consent.Decide(&r), Unreadable, "%[2]d of %[3]d bytes: %[1]v", n, len(data))
			}
			text := []byte(c.String())
			for n := range text {
				New(true, text[:n]).Decide(&r)
			}
			for range 2000 { // no panic
				changed := bytes.Clone(text)
				for range 1 + source.IntN(4) {
					changed[1+source.IntN(len(text)-1)] = alphabet[source.IntN(len(alphabet))]
				}
				New(true, changed).Decide(&r)
			}
		}
	}
	held := 0
	for range 4000 {
		text := []byte{'C'}
		for range source.IntN(120) {
			text = append(text, alphabet[source.IntN(len(alphabet))])
		}
		if New(true, text).Decide(&r).Allows() {
			held++
		}
	}
	testsupport.Equal(t, held, 0, "%d random strings hold")
}

// The decoder of package tcf2 panics on this string, which ends before the bit that says whether ranges follow.
func TestTheDecodersPanicsAreRecovered(t *testing.T) {
	t.Parallel()
	data, err := base64.RawURLEncoding.DecodeString("CN-EdYAN-EdYAAKABBDEAwEgAIAAAAAAAAYgABAAAA")
	testsupport.NoError(t, err)
	_, complete := check(data)
	testsupport.True(t, !complete, "the string is complete")
	testsupport.Equal(t, decode(data, 0), unreadable, "it is decoded as %v")
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func FuzzConsent(f *testing.F) {
	f.Add(granted(restriction{2, 0, [2]int{1, 5}}).String(), 76, 2)
	f.Add(core{asRanges: true, vendors: []int{1, 2}}.String()+".YAAA", 1, 1)
	f.Fuzz(func(t *testing.T, text string, vendor, purpose int) {
		r := Requirement{Vendor: vendor & 0xffff, Purposes: []int{purpose&15 + 1}, LegitimateInterests: []int{purpose>>4&15 + 1}}
		c := New(true, []byte(text))
		testsupport.Equal(t, c.Lack(&r) == "", c.Decide(&r).Allows(), "nothing is lacking: %v")
		testsupport.True(t, New(false, []byte(text)).Decide(&r) == NotApplicable, "the GDPR applies")
	})
}

// A string costs no more memory than its length explains, whatever its counts announce.
func TestAnnouncedRestrictionsReserveNoMemory(t *testing.T) {
	data := core{}.data()
	for i := range data[27:] { // the ids of the highest vendors, and the number of restrictions
		announcing := append(bytes.Clone(data), 0, 0)
		announcing[27+i] |= 0xff
		text := []byte(base64.RawURLEncoding.EncodeToString(announcing))
		least := uint64(math.MaxUint64) // the runtime allocates too
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			New(true, text)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		testsupport.True(t, least <= 2000, "%s allocates %d bytes", text, least)
	}
}

// After the string has been decoded, a decision allocates nothing.
func TestDecisionsAllocateNothing(t *testing.T) {
	r := Requirement{Vendor: 76, Purposes: []int{1, 2, 7}, LegitimateInterests: []int{10}}
	for _, text := range []string{granted(restriction{3, 0, [2]int{1, 80}}).String(), granted(restriction{7, 0, [2]int{1, 80}}).String(), "", "C"} {
		c := New(true, []byte(text))
		testsupport.Equal(t, testing.AllocsPerRun(100, func() { c.Decide(&r) }), 0, "%[2]q: a decision allocates %[1]v times", text)
	}
	text := []byte(granted().String())
	testsupport.Equal(t, testing.AllocsPerRun(100, func() { New(false, text) }), 0, "a string that is not needed allocates %v times")
}

func BenchmarkDecide(b *testing.B) {
	r := Requirement{Vendor: 76, Purposes: []int{1, 2, 7}, LegitimateInterests: []int{10}}
	text := []byte(granted(restriction{3, 0, [2]int{1, 80}}).String())
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			New(true, text).Decide(&r)
		}
	})
	b.Run("further", func(b *testing.B) {
		c := New(true, text)
		b.ReportAllocs()
		for b.Loop() {
			c.Decide(&r)
		}
	})
}

// made is a line of strings.js.
type made struct {
	Text              string
	Vendors           []bool
	Consent, Interest []int
}

// Strings of the encoder of @iabtcf/core (testdata/iabtcf-core-1.5.6.tgz, as npm has it; Apache License 2.0) are decided
// as its decoder decides, for all vendors and purposes.
func TestStringsOfAnotherEncoder(t *testing.T) {
	t.Parallel()
	node := testsupport.Needs(t, "nodejs", "node")
	dir := t.TempDir()
	testsupport.Output(t, exec.CommandContext(t.Context(), "tar", "-xzf", "testdata/iabtcf-core-1.5.6.tgz", "-C", dir))
	out := testsupport.Output(t, exec.CommandContext(t.Context(), node, "testdata/strings.js", dir+"/package/lib/cjs/index.js", "1000"))
	decoder := json.NewDecoder(strings.NewReader(out))
	n, decisions, allowed := 0, 0, 0
	for ; ; n++ {
		var m made
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c := New(true, []byte(m.Text))
		is := func(want bool, r *Requirement) {
			decisions++
			if want {
				allowed++
			}
			if got := c.Decide(r).Allows(); got != want {
				t.Fatalf("%s: %+v is %v (%s), want %v", m.Text, *r, got, c.Lack(r), want)
			}
		}
		purpose := make([]int, 1)
		for vendor := range m.Vendors {
			is(m.Vendors[vendor], &Requirement{Vendor: vendor})
			for purpose[0] = 1; purpose[0] <= 24; purpose[0]++ {
				is(m.Consent[vendor]>>purpose[0]&1 != 0, &Requirement{Vendor: vendor, Purposes: purpose})
				is(m.Interest[vendor]>>purpose[0]&1 != 0, &Requirement{Vendor: vendor, LegitimateInterests: purpose})
			}
		}
	}
	testsupport.Equal(t, n, 1000, "there are %d strings")
	t.Logf("%d decisions, %d of them allowed", decisions, allowed)
	testsupport.True(t, allowed > decisions/10 && allowed < decisions*9/10, "%d of %d decisions are allowed", allowed, decisions)
}
