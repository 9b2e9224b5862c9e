// The page's policy allows no style that comes from a script as text, and xterm writes such: elements of style when it opens,
// and attributes for colours beyond the palette. Both become objects here, which are allowed because no markup can make them.

/** Does something that makes elements of style; each becomes a sheet of the document, until it is removed. */
export function withSheets<T>(work: () => T): T {
  const create = document.createElement;
  const sheet = () => adopted(create.call(document, 'template'));
  document.createElement = ((name: string, options?: ElementCreationOptions) =>
    name === 'style' ? sheet() : create.call(document, name, options)) as typeof document.createElement;
  try {
    return work();
  } finally {
    document.createElement = create;
  }
}

/** An element that shows nothing, and whose text is a sheet of the document. */
function adopted(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, 'textContent', { set: (text: string) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(other => other !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

/** A style that is set as an attribute of a span is set as its properties instead, which comes to the same. */
export function styleSpansByProperty() {
  const set = Element.prototype.setAttribute;
  HTMLSpanElement.prototype.setAttribute = function (name: string, value: string) {
    if (name === 'style') this.style.cssText = value;
    else set.call(this, name, value);
  };
}
