/* Exact verdicts on the equality condition: numbers are fractions of two BigInts, nothing is ever rounded.
   A classic script, because browsers refuse modules from file:// addresses; it defines globalThis.Dobrushin. */
"use strict";

(() => {
  const gcd = (a, b) => {
    while (b) [a, b] = [b, a % b];
    return a < 0n ? -a : a;
  };

  /** The fraction p/q in lowest terms, q > 0. */
  function fraction(p, q = 1n) {
    if (q === 0n) throw new RangeError("division by zero");
    const g = gcd(p, q) || 1n;
    return q < 0n ? { p: -p / g, q: -q / g } : { p: p / g, q: q / g };
  }
  const add = (a, b) => fraction(a.p * b.q + b.p * a.q, a.q * b.q);
  const subtract = (a, b) => fraction(a.p * b.q - b.p * a.q, a.q * b.q);
  const multiply = (a, b) => fraction(a.p * b.p, a.q * b.q);
  const divide = (a, b) => fraction(a.p * b.q, a.q * b.p);
  const compare = (a, b) => {
    const d = a.p * b.q - b.p * a.q;
    return d < 0n ? -1 : d > 0n ? 1 : 0;
  };
  const abs = (a) => ({ p: a.p < 0n ? -a.p : a.p, q: a.q });
  const ZERO = fraction(0n);
  const ONE = fraction(1n);
  const HALF = fraction(1n, 2n);
  const positive = (a) => (a.p > 0n ? a : ZERO);
  const sum = (list) => list.reduce(add, ZERO);

  const DIGITS = 400; // more than the exponent of any double; bounds the work that a typed number can ask for
  const DECIMAL = /^(\d*)(?:[.,](\d*))?(?:e([+-]?\d{1,3}))?$/i;

  function decimal(text) {
    const [, whole = "", part = "", power = "0"] = DECIMAL.exec(text) ?? [];
    if (whole + part === "" || text.length > DIGITS || Math.abs(power) > DIGITS) return null;
    const shift = BigInt(power) - BigInt(part.length);
    const digits = BigInt(whole + part);
    return shift < 0n ? fraction(digits, 10n ** -shift) : fraction(digits * 10n ** shift);
  }

  /** The weight that a text names exactly: "0.25", "1/3", "2e-3"; throws with the remedy where it names none. */
  function parse(text) {
    const plain = text.trim().replace(/\u2212/g, "-");
    if (plain === "") throw new RangeError("the cell is empty; type a weight such as 0.25 or 1/3");
    const parts = plain.replace(/^-/, "").split("/");
    const numbers = parts.map((part) => decimal(part.trim()));
    if (parts.length > 2 || numbers.includes(null))
      throw new RangeError(`“${plain.slice(0, 20)}” is no number; type a decimal such as 0.25 or a fraction such as 1/3`);
    if (numbers.length === 2 && numbers[1].p === 0n) throw new RangeError(`“${plain}” divides by zero`);
    const value = numbers.length === 2 ? divide(numbers[0], numbers[1]) : numbers[0];
    if (plain.startsWith("-") && value.p > 0n) throw new RangeError(`${plain} is negative; a weight lies between 0 and 1`);
    if (compare(value, ONE) > 0) throw new RangeError(`${plain} is more than 1; a weight lies between 0 and 1`);
    return value;
  }

  /** Digits after the point of a fraction whose decimal expansion ends within `most` digits; null otherwise. */
  function terminates(a, most) {
    let rest = a.q;
    let digits = 0;
    for (; digits <= most && rest !== 1n; digits++) rest /= gcd(rest, 10n);
    return rest === 1n && digits <= most ? digits : null;
  }

  /** Rounded to so many digits after the point, half away from zero. */
  function fixed(a, digits) {
    const scale = 10n ** BigInt(digits);
    const twice = 2n * abs(a).p * scale;
    const units = (twice + a.q) / (2n * a.q);
    const whole = `${units / scale}`;
    const part = digits ? `.${`${units % scale}`.padStart(digits, "0")}` : "";
    return `${a.p < 0n && units ? "−" : ""}${whole}${part}`;
  }

  /** Scientific notation with three digits, for what would round to zero. */
  function small(a) {
    let power = 0;
    let value = abs(a);
    while (compare(value, ONE) < 0) {
      value = fraction(value.p * 10n, value.q);
      power -= 1;
    }
    let digits = fixed(value, 2);
    if (digits === "10.00") {
      digits = "1.00";
      power += 1;
    }
    return `${a.p < 0n ? "−" : ""}${digits}e${power}`;
  }

  /** How a value is typed again, exactly: as a short decimal where there is one, else as a fraction. */
  function type(a) {
    const digits = terminates(a, 6);
    return digits === null ? (a.q === 1n ? `${a.p}` : `${a.p}/${a.q}`) : fixed(a, digits).replace("−", "-");
  }

  /** A value for reading: "5/8 = 0.625", "1/3 ≈ 0.333333"; the fraction only where it is short. */
  function show(a) {
    if (a.q === 1n) return `${a.p}`.replace("-", "−");
    const digits = terminates(a, 6);
    let number = digits === null ? fixed(a, 6) : fixed(a, digits);
    if (digits === null && compare(abs(a), fraction(1n, 10000n)) < 0) number = small(a);
    const short = `${a.p}/${a.q}`.replace("-", "−");
    if (short.length > 11) return digits === null ? `≈ ${number}` : number;
    return `${short} ${digits === null ? "≈" : "="} ${number}`;
  }

  /** The double nearest to a fraction from 0 to 1, ties to even: what a program stores for it. */
  function toDouble(a) {
    if (a.p === 0n) return 0;
    const length = (x) => x.toString(2).length;
    // With 2^shift the quotient has at least 54 bits, unless the number is subnormal.
    const shift = Math.min(1075, 55 - length(a.p) + length(a.q));
    const scaled = a.p << BigInt(shift);
    let bits = scaled / a.q;
    const drop = Math.max(length(bits) - 53, shift - 1074, 0);
    const remainder = bits & ((1n << BigInt(drop)) - 1n);
    const sticky = scaled % a.q !== 0n;
    const half = drop ? 1n << BigInt(drop - 1) : 0n;
    bits >>= BigInt(drop);
    const above = drop && (remainder > half || (remainder === half && (sticky || (bits & 1n))));
    if (above) bits += 1n;
    // Two factors: 2^-1074 · bits is a double, but 2^(drop - shift) alone may underflow.
    const power = drop - shift;
    return Number(bits) * 2 ** Math.max(power, -1000) * 2 ** Math.min(power + 1000, 0);
  }

  /** The fraction that a double is. */
  function fromDouble(x) {
    let power = 0;
    while (!Number.isInteger(x)) {
      x *= 2;
      power += 1;
    }
    return fraction(BigInt(x), 1n << BigInt(power));
  }

  /** Total variation of two rows. */
  const distance = (x, y) => multiply(HALF, sum(x.map((a, k) => abs(subtract(a, y[k])))));

  const pairsOf = (n) => {
    const pairs = [];
    for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) pairs.push([i, j]);
    return pairs;
  };
  const largest = (list) => list.reduce((a, b) => (compare(b, a) > 0 ? b : a));

  /**
   * The verdict on a square matrix of fractions in [0, 1].
   *
   * κ(½(I+A)) is computed from the matrix ½(I+A) itself, and the gap a second time from the deficits.
   */
  function judge(A) {
    const pairs = pairsOf(A.length).map(([i, j]) => {
      const back = subtract(A[j][i], A[i][i]);
      const forth = subtract(A[i][j], A[j][j]);
      return {
        i, j, tv: distance(A[i], A[j]), back: back.p <= 0n, forth: forth.p <= 0n, good: back.p <= 0n && forth.p <= 0n,
        deficit: multiply(HALF, add(positive(back), positive(forth))),
      };
    });
    const kappa = largest(pairs.map((pair) => pair.tv));
    for (const pair of pairs) {
      pair.attains = compare(pair.tv, kappa) === 0;
      pair.loss = add(multiply(HALF, subtract(kappa, pair.tv)), pair.deficit);
    }
    const lazy = A.map((row, i) => row.map((a, k) => multiply(HALF, i === k ? add(ONE, a) : a)));
    const lazyKappa = largest(pairs.map(({ i, j }) => distance(lazy[i], lazy[j])));
    const bound = multiply(HALF, add(ONE, kappa));
    const gap = subtract(bound, lazyKappa);
    const attaining = pairs.filter((pair) => pair.attains);
    const pair = attaining.find((one) => one.good) ?? attaining[0];
    const again = pairs.map((one) => one.loss).reduce((a, b) => (compare(b, a) < 0 ? b : a));
    if (compare(gap, again) !== 0 || (gap.p === 0n) !== pair.good)
      throw new Error("the two ways to the gap disagree: please report this matrix");
    return { n: A.length, pairs, kappa, lazyKappa, bound, gap, holds: pair.good, pair };
  }

  globalThis.Dobrushin = {
    fraction, add, subtract, multiply, divide, compare, sum, parse, type, show, fixed, toDouble, fromDouble, judge, ZERO, ONE,
  };
})();
