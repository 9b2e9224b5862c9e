import { memo } from 'react';
import { go, here } from '../model/router.ts';
import { Icon } from './icon.tsx';

const search = (text: string) => go(here(null, { q: text }), 'replace');

/** Where one types what is looked for; the address of the page keeps it. Painted again only when that changed. */
export const Search = memo(function Search(props: { label: string; hint: string; text: string }) {
  return (
    <div className="search">
      <Icon name="search" />
      <input
        type="search"
        placeholder={props.hint}
        aria-label={props.label}
        value={props.text}
        onChange={event => search(event.target.value)}
      />
    </div>
  );
});
