import { type ReactNode, useEffect, useRef, useState } from 'react';
import { Icon, type IconName } from './icon.tsx';

/** Something that opens below a button, and closes on Escape or a click beside it. */
export function Popover({ title, icon, children }: { title: string; icon?: IconName; children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  const whole = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const outside = (event: PointerEvent) => {
      if (!whole.current?.contains(event.target as globalThis.Node)) setOpen(false);
    };
    const close = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      event.preventDefault();
      setOpen(false);
      whole.current?.querySelector('button')?.focus();
    };
    document.addEventListener('pointerdown', outside);
    document.addEventListener('keydown', close, true);
    return () => {
      document.removeEventListener('pointerdown', outside);
      document.removeEventListener('keydown', close, true);
    };
  }, [isOpen]);
  return (
    <div className="popover" ref={whole}>
      <button type="button" className="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {icon && <Icon name={icon} />}
        {title}
      </button>
      {isOpen && <div className="popover-body">{children}</div>}
    </div>
  );
}
