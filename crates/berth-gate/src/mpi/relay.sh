here="/tmp/.berth-mpi-$BERTH_RUN"
until [ -d "$here" ]; do sleep 0.2; done
for sent in "$here"/*.sent; do
    code="${sent%.sent}.code"
    if [ -e "$sent" ] && ! [ -e "$code" ]; then echo '255 the server began anew before it was known' > "$code"; fi
done
exec 3<&0
(
    while read -r id code text <&3; do
        echo "$code $text" > "$here/$id.answer" && mv "$here/$id.answer" "$here/$id.code"
    done
    kill $$
) &
while :; do
    for ask in "$here"/*.ask; do
        [ -e "$ask" ] || continue
        id="${ask##*/}"
        id="${id%.ask}"
        mv "$ask" "$here/$id.sent" || continue
        echo "$id $(wc -c < "$here/$id.sent")"
        cat "$here/$id.sent"
    done
    sleep 0.3
done
