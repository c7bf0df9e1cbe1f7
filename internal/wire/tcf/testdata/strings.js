// node strings.js PACKAGE NUMBER writes NUMBER consent strings of the encoder of @iabtcf/core, one line of JSON for each:
// the string, and what its decoder reads for the vendors from 0: whether the vendor has consent, the purposes for which
// it may process data with consent, and those for which it may do so with legitimate interest, as a bit for each id.
const { TCModel, TCString, GVL, PurposeRestriction, RestrictionType } = require(process.argv[2]);

let state = 1; // of Marsaglia's xorshift32
function below(n) {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) % n;
}
const ids = n => Array.from({ length: n }, (_, i) => i + 1);
const purposes24 = ids(24), purposes11 = ids(11); // those that a string has room for, and those of today
const some = (of, percent) => of.filter(() => below(100) < percent);

function vendorList(n) {
  const named = (list, more) => Object.fromEntries(list.map(id => [id, { id, name: "x", description: "", descriptionLegal: "", illustrations: [], ...more }]));
  const vendors = {};
  for (const id of some(ids(n), 90)) {
    const purposes = some(purposes11, 50), legIntPurposes = some(purposes11.filter(p => p > 1 && !purposes.includes(p)), 80);
    vendors[id] = { id, name: "v", purposes: [1, ...purposes.filter(p => p > 1)], legIntPurposes: [2, ...legIntPurposes.filter(p => p > 2)],
      flexiblePurposes: purposes11, specialPurposes: [], features: [], specialFeatures: [], policyUrl: "", cookieMaxAgeSeconds: 1, usesCookies: true };
  }
  const list = new GVL({ gvlSpecificationVersion: 3, vendorListVersion: 1 + below(500), tcfPolicyVersion: 5, lastUpdated: "2026-01-01T00:00:00Z",
    purposes: named(purposes11), specialPurposes: named(ids(3)), features: named(ids(3)), specialFeatures: named(ids(2)), stacks: {}, dataCategories: {}, vendors });
  list.clone = () => list; // TCString.encode clones the list, which would take most of the time, and does not change it
  return list;
}

function model(gvl) {
  const m = new TCModel(gvl), vendors = Object.keys(gvl.vendors).map(Number), percent = [5, 50, 95, 100][below(4)];
  m.cmpId = 2 + below(400); m.cmpVersion = 1 + below(100); m.isServiceSpecific = below(4) > 0; m.publisherCountryCode = "DE";
  m.purposeConsents.set(some(purposes24, 70)); m.purposeLegitimateInterests.set(some(purposes24, 70)); m.specialFeatureOptins.set(some(ids(2), 50));
  m.vendorConsents.set(some(vendors, percent)); m.vendorLegitimateInterests.set(some(vendors, percent)); m.vendorsDisclosed.set(some(vendors, 50));
  for (let n = m.isServiceSpecific ? below(6) : 0; n > 0; n--) {
    const restriction = new PurposeRestriction(1 + below(11), [RestrictionType.NOT_ALLOWED, RestrictionType.REQUIRE_CONSENT, RestrictionType.REQUIRE_LI][below(3)]);
    some(vendors, [10, 90][below(2)]).forEach(v => m.publisherRestrictions.add(v, restriction));
  }
  return m;
}

const bitmap = list => list.reduce((bits, p) => bits | 1 << p, 0);
const lists = [1, 3, 12, 40, 50, 60, 80].map(vendorList), long = vendorList(1000);
let out = "";
for (let n = +process.argv[3]; n > 0; n--) {
  const text = TCString.encode(model(n % 200 ? lists[n % lists.length] : long)), m = TCString.decode(text);
  const all = { text, vendors: [], consent: [], interest: [] };
  const last = Math.max(m.vendorConsents.maxId, m.vendorLegitimateInterests.maxId, m.publisherRestrictions.getMaxVendorId()) + 1;
  for (let v = 0; v <= last; v++) {
    const types = {}; // of the restrictions on the vendor, by purpose
    m.publisherRestrictions.getRestrictions(v).forEach(r => (types[r.purposeId] ||= []).push(r.restrictionType));
    const allowed = (vendors, purposes, otherBasis) => !vendors.has(v) ? 0 : bitmap(purposes24.filter(p =>
      purposes.has(p) && !(types[p] || []).some(type => type === RestrictionType.NOT_ALLOWED || type === otherBasis)));
    all.vendors.push(m.vendorConsents.has(v));
    all.consent.push(allowed(m.vendorConsents, m.purposeConsents, RestrictionType.REQUIRE_LI));
    all.interest.push(allowed(m.vendorLegitimateInterests, m.purposeLegitimateInterests, RestrictionType.REQUIRE_CONSENT));
  }
  out += JSON.stringify(all) + "\n";
}
process.stdout.write(out);
