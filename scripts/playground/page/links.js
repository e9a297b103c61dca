// Links that carry a script: #lua= and the base64url of its UTF-8 text (RFC 4648, without padding).

export const MOST = 200000; // characters of a link

/* The fragment for a text, or null if the link would be too long. */
export function encode(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  const code = btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  return code.length <= MOST ? "#lua=" + code : null;
}

/* {text}, {problem} or null, if the fragment carries nothing. */
export function decode(fragment) {
  const found = /^#lua=(.*)$/s.exec(fragment);
  if (!found) return null;
  // Not code.replace(/=+$/, ""), whose time is quadratic: links may be long.
  let end = found[1].length;
  while (found[1][end - 1] === "=") end--;
  const code = found[1].slice(0, end);
  const broken = (why) => ({ problem: `The link is broken: ${why}. Ask for it again, or copy it completely.` });
  if (code === "") return broken("it carries no script");
  if (code.length > MOST) return broken(`its script has more than ${MOST} characters`);
  const wrong = /[^A-Za-z0-9_-]/.exec(code);
  if (wrong) return broken(`character ${wrong.index + 1} of its script is not valid`);
  if (code.length % 4 === 1) return broken("its end is missing");
  try {
    const binary = atob(code.replace(/-/g, "+").replace(/_/g, "/"));
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return broken("its script is not UTF-8 text");
  }
}
